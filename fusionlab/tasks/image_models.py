"""Image classifiers to train: of transformers or timm, from a checkpoint or fresh from a description."""

from collections.abc import Mapping, Sequence
from typing import Any

import timm
from torch import nn
from transformers import AutoModelForImageClassification

from fusionlab import checkpoints
from fusionlab.checkpoints.hub import locate
from fusionlab.checkpoints.quiet import quiet
from fusionlab.checkpoints.sizes import refuse_absurd, within_memory
from fusionlab.checkpoints.timm_folder import is_timm
from fusionlab.errors import InputError, first_line
from fusionlab.tasks import models
from fusionlab.tasks.models import LIBRARY, fits, label_fields, say_new_head

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
    library = values.pop(LIBRARY, "transformers")
    if library == "transformers":
        return models.fresh_model(values, AutoModelForImageClassification, label_fields(num_classes, labels))
    if library != "timm":
        raise InputError(f"model.library is {library!r}, but transformers or timm was expected")
    name = values.pop("architecture", None)
    if name not in timm.list_models():
        raise InputError(f"model.architecture is {name!r}, which timm does not know")
    refuse_absurd({**values, "num_classes": num_classes}, "model")
    _refuse_too_large(name, num_classes, values)
    try:
        with quiet():
            return timm.create_model(name, pretrained=False, num_classes=num_classes, **values)
    except Exception as error:
        # Hundreds of classes check their arguments in as many ways; all of them mean that the description is wrong.
        raise InputError(f"model: timm cannot build {name} as described ({first_line(error)})") from error


def _refuse_too_large(name: str, num_classes: int, values: Mapping[str, Any]) -> None:
    """Refuse a model that this machine's memory does not hold, before it is built."""
    try:
        with quiet(), within_memory("model"):
            timm.create_model(name, pretrained=False, num_classes=num_classes, **values)
    except InputError:
        raise
    except Exception:
        # Older versions of timm cannot build all of their models without memory; what is wrong is told when they do.
        pass


def pretrained_model(source: str, num_classes: int, labels: Sequence[str] | None = None) -> nn.Module:
    """Load an image classifier; a head for other classes is replaced, which is said on stderr.

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
        return models.pretrained_model(source, AutoModelForImageClassification, label_fields(num_classes, labels))
    model: Any = checkpoints.load(location).float()
    if is_timm(model):
        if model.num_classes != num_classes:
            model.reset_classifier(num_classes)
            say_new_head(source, [], num_classes)
        return model
    if getattr(model.config, "num_labels", None) != num_classes:
        raise InputError(
            f"{source} has {model.config.num_labels} classes, but num_classes is {num_classes}; to start from it "
            f"with a new head, export it as a folder first"
        )
    fields = label_fields(num_classes, labels)
    if not fits(model.config, fields):
        stored = ", ".join(map(str, model.config.id2label.values()))
        raise InputError(
            f"{source} was trained for the labels {stored}, but model.labels is {', '.join(labels or ())}; expected "
            f"the same in that order"
        )
    if labels is not None:
        model.config.id2label, model.config.label2id = fields["id2label"], fields["label2id"]
    return model


def _timm_pretrained(name: str, num_classes: int) -> nn.Module:
    try:
        with quiet():
            return timm.create_model(name, pretrained=True, num_classes=num_classes)
    except Exception as error:
        # Download, cache and loading fail in the exceptions of several libraries.
        raise InputError(f"{TIMM}{name}: timm cannot load its pretrained weights ({first_line(error)})") from error
