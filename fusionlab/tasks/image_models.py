"""Image classifiers to train: from a checkpoint, from timm's names, or fresh from a description."""

from collections.abc import Mapping, Sequence
from typing import Any

import timm
from lightning.pytorch.utilities import rank_zero_only
from rich.console import Console
from torch import nn
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForImageClassification

from fusionlab import checkpoints
from fusionlab.checkpoints.files import first_line
from fusionlab.checkpoints.hub import locate
from fusionlab.checkpoints.quiet import quiet
from fusionlab.checkpoints.timm_folder import is_timm
from fusionlab.errors import InputError

TIMM = "timm/"


def fresh_model(description: Mapping[str, Any], num_classes: int, labels: Sequence[str] | None = None) -> nn.Module:
    """Build an image classifier with random weights, which follow torch's seed.

    Args:
        description: ``library`` (``transformers`` or ``timm``), then for transformers ``model_type`` and any values of
            its configuration, for timm ``architecture`` and any arguments of ``timm.create_model``.
        num_classes: number of classes, at least 1.
        labels: names of the classes, in order; stored in a transformers configuration.

    Returns:
        The model.

    Raises:
        InputError: an unknown library, model type or architecture, or a value that it refuses.
    """
    values = dict(description)
    library = values.pop("library", "transformers")
    if library not in ("transformers", "timm"):
        raise InputError(f"model.library is {library!r}, but transformers or timm was expected")
    key = "model_type" if library == "transformers" else "architecture"
    name = values.pop(key, None)
    known = CONFIG_MAPPING if library == "transformers" else timm.list_models()
    if name not in known:
        raise InputError(f"model.{key} is {name!r}, which {library} does not know")
    try:
        with quiet():
            if library == "timm":
                return timm.create_model(name, pretrained=False, num_classes=num_classes, **values)
            _refuse_unknown_fields(name, values)
            config = AutoConfig.for_model(name, **values, **label_fields(num_classes, labels))
            return AutoModelForImageClassification.from_config(config)
    except InputError:
        raise
    except Exception as error:
        # Hundreds of classes check their arguments in as many ways; all of them mean that the description is wrong.
        raise InputError(f"model: {library} cannot build {name} as described ({first_line(error)})") from error


def pretrained_model(source: str, num_classes: int, labels: Sequence[str] | None = None) -> nn.Module:
    """Load an image classifier; a head for another number of classes is replaced, which is said on stderr.

    Args:
        source: a checkpoint (transformers or timm folder, Lightning file, hub id), or ``timm/NAME`` for timm's own
            pretrained weights.
        num_classes: number of classes, at least 1.
        labels: names of the classes, in order; stored in a transformers configuration.

    Returns:
        The model in float32, which training needs whatever the checkpoint is stored in.

    Raises:
        InputError: as `fusionlab.checkpoints.read`, or the model has no image-classification head.
    """
    if source.startswith(TIMM) and timm.is_model(source.removeprefix(TIMM).split(".")[0]):
        return _timm_pretrained(source.removeprefix(TIMM), num_classes)
    location = locate(source)
    if location.is_dir() and checkpoints.stored_as(location) == "transformers":
        fields = label_fields(num_classes, labels)
        adapted, fresh = checkpoints.load_with_head(location, AutoModelForImageClassification, **fields)
        if fresh:
            _say_new_head(source, num_classes, fresh)
        return adapted
    model: Any = checkpoints.load(location).float()
    if is_timm(model):
        if model.num_classes != num_classes:
            model.reset_classifier(num_classes)
            _say_new_head(source, num_classes, [])
        return model
    if getattr(model.config, "num_labels", None) != num_classes:
        raise InputError(
            f"{source} has {model.config.num_labels} classes, but num_classes is {num_classes}; to start from it "
            f"with a new head, export it as a folder first"
        )
    return model


def label_fields(num_classes: int, labels: Sequence[str] | None) -> dict[str, Any]:
    """The fields of a transformers configuration that say which classes there are."""
    names = [str(index) for index in range(num_classes)] if labels is None else list(labels)
    return {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}


def _refuse_unknown_fields(model_type: str, values: Mapping[str, Any]) -> None:
    """transformers keeps any field it is given without using it, so that a typing error would pass unseen."""
    known = AutoConfig.for_model(model_type).to_dict().keys()
    unknown = [name for name in values if name not in known]
    if unknown:
        raise InputError(f"model.{unknown[0]} is not a field of transformers' {model_type} configuration")


def _timm_pretrained(name: str, num_classes: int) -> nn.Module:
    try:
        with quiet():
            return timm.create_model(name, pretrained=True, num_classes=num_classes)
    except Exception as error:
        # Download, cache and loading fail in the exceptions of several libraries.
        raise InputError(f"{TIMM}{name}: timm cannot load its pretrained weights ({first_line(error)})") from error


@rank_zero_only
def _say_new_head(source: str, num_classes: int, fresh: Sequence[str]) -> None:
    names = f" ({', '.join(fresh)})" if fresh else ""
    Console(stderr=True).print(
        f"{source}: the head{names} was replaced by a fresh one for {num_classes} classes; all else was loaded.",
        highlight=False,
        markup=False,
    )
