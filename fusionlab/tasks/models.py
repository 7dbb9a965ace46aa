"""Models of transformers to train, under the head of a task: from a checkpoint, or fresh from a description."""

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities import rank_zero_only
from rich.console import Console
from torch import nn
from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig, PreTrainedModel

from fusionlab import checkpoints
from fusionlab.checkpoints.hub import locate
from fusionlab.checkpoints.huggingface_config import load_config
from fusionlab.checkpoints.quiet import quiet
from fusionlab.checkpoints.sizes import refuse_absurd, within_memory
from fusionlab.data.tokenizers import has_tokenizer, load_tokenizer
from fusionlab.errors import InputError, first_line
from fusionlab.misfits import unnamed

LIBRARY = "library"


def transformers_model(
    model: str | Mapping[str, Any], auto_class: Any, fields: Mapping[str, Any] | None = None
) -> PreTrainedModel:
    """Load or build a model under the head of a task, ready to be trained.

    Args:
        model: a checkpoint (transformers folder, Lightning file, hub id), or the description of a fresh model:
            ``model_type`` and any values of its configuration.
        auto_class: the auto class of the task, such as ``AutoModelForTokenClassification``.
        fields: values of the configuration that belong to the head: names of the classes, kind of problem. None for
            language models, whose head belongs to the vocabulary.

    Returns:
        The model in float32, which training needs whatever the checkpoint is stored in.

    Raises:
        InputError: as `fresh_model` and `pretrained_model`.
    """
    if isinstance(model, str):
        return pretrained_model(model, auto_class, fields)
    values = dict(model)
    if (library := values.pop(LIBRARY, "transformers")) != "transformers":
        raise InputError(f"model.library is {library!r}, but transformers was expected for this task")
    return fresh_model(values, auto_class, fields)


def fresh_model(
    description: Mapping[str, Any], auto_class: Any, fields: Mapping[str, Any] | None = None
) -> PreTrainedModel:
    """Build a model with random weights, which follow torch's seed.

    Args:
        description: ``model_type`` and any values of its configuration.
        auto_class: the auto class of the task.
        fields: values of the configuration that belong to the head.

    Returns:
        The model.

    Raises:
        InputError: an unknown model type, one without such a head, or a value that it refuses.
    """
    values = dict(description)
    name = values.pop("model_type", None)
    if name not in CONFIG_MAPPING:
        raise InputError(f"model.model_type is {name!r}, which transformers does not know")
    try:
        with quiet():
            _refuse_unknown_fields(name, values)
            refuse_absurd(values, "model")
            head = _with_padding(AutoConfig.for_model(name, **values), fields)
            config = AutoConfig.for_model(name, **{**values, **head})
            with within_memory("model"):
                auto_class.from_config(copy.deepcopy(config))
            return auto_class.from_config(config)
    except InputError:
        raise
    except Exception as error:
        # Hundreds of classes check their arguments in as many ways; all of them mean that the description is wrong.
        raise InputError(f"model: transformers cannot build {name} as described ({first_line(error)})") from error


def pretrained_model(source: str, auto_class: Any, fields: Mapping[str, Any] | None = None) -> PreTrainedModel:
    """Load a model; the head of another task, or for other classes, is replaced, which is said on stderr.

    Args:
        source: a checkpoint: transformers folder, Lightning file or hub id.
        auto_class: the auto class of the task.
        fields: values of the configuration that belong to the head.

    Returns:
        The model in float32.

    Raises:
        InputError: as `fusionlab.checkpoints.read`, or the type has no such head.
    """
    try:
        location = locate(source)
    except InputError as error:
        raise InputError(
            f"{error}; a fresh model needs none: model: {{model_type: bert, ...}} in place of the name"
        ) from error
    if location.is_dir():
        padded = _with_padding(load_config(location), fields, location)
        model, fresh = checkpoints.load_with_head(location, auto_class, **padded)
        if fields is not None and not fresh and not _same_head(load_config(location), model):
            fresh = _renew_head(model)
        if fresh:
            say_new_head(source, fresh, None if fields is None else model.config.num_labels)
        return model
    loaded: Any = checkpoints.load(location).float()
    wanted = auto_class._model_mapping.get(type(getattr(loaded, "config", None)), ())
    if type(loaded) not in (wanted if isinstance(wanted, tuple) else (wanted,)) or not fits(loaded.config, fields):
        raise InputError(
            f"{source} holds a {type(loaded).__name__} whose head is of another task or for other classes; to start "
            f"from it with a new head, export it as a folder first"
        )
    return loaded


def label_fields(num_classes: int, labels: Sequence[str] | None) -> dict[str, Any]:
    """The fields of a transformers configuration that say which classes there are."""
    refuse_absurd({"num_classes": num_classes}, "model")
    names = [str(index) for index in range(num_classes)] if labels is None else list(labels)
    return {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}


@rank_zero_only
def say_new_head(source: str, fresh: Sequence[str], num_classes: int | None) -> None:
    """Say on stderr that the head is new.

    Args:
        source: the checkpoint.
        fresh: names of the parameters that are new, where they are known.
        num_classes: classes of the new head; None for a language model.
    """
    names = f" ({', '.join(fresh)})" if fresh else ""
    classes = "" if num_classes is None else f" for {num_classes} classes"
    Console(stderr=True).print(
        f"{source}: the head{names} was replaced by a fresh one{classes}; all else was loaded.",
        highlight=False,
        markup=False,
    )


def _same_head(stored: PretrainedConfig, model: PreTrainedModel) -> bool:
    """True if a stored head of the right sizes is one for this task: heads of two tasks may have the same shapes."""
    return (stored.architectures or [""])[0] == type(model).__name__ and fits(stored, model.config.to_dict())


def fits(stored: PretrainedConfig, fields: Mapping[str, Any] | None) -> bool:
    """True if a stored head may be one for some classes: as many, under the same names where both are named.

    Args:
        stored: the configuration that the head was stored with.
        fields: of the classes, see `label_fields`; None for no classes.
    """
    if fields is None:
        return True
    names, wanted = list((stored.id2label or {}).values()), [str(name) for name in fields["id2label"].values()]
    if len(names) != len(wanted) or not (names == wanted or unnamed(names) or unnamed(wanted)):
        return False
    kinds = stored.problem_type, fields.get("problem_type")
    return None in kinds or kinds[0] == kinds[1]


def _renew_head(model: PreTrainedModel) -> list[str]:
    """Give everything outside the body new weights; returns the names."""
    body = f"{model.base_model_prefix}."
    fresh: nn.Module = type(model)(model.config)
    head = {name: tensor for name, tensor in fresh.state_dict().items() if not name.startswith(body)}
    model.load_state_dict(head, strict=False)
    return sorted(head)


def _with_padding(
    config: PretrainedConfig, fields: Mapping[str, Any] | None, location: Path | None = None
) -> dict[str, Any]:
    """The fields of a head, and the padding token of decoders that name none: they classify by the last real token.

    It is what the tokenizer beside them pads with; without one, the end of a text.
    """
    if fields is None or getattr(config, "pad_token_id", None) is not None:
        return dict(fields or {})
    padding = getattr(config, "eos_token_id", None)
    if location is not None and has_tokenizer(location):
        with suppress(InputError):
            padding = load_tokenizer(str(location)).pad_token_id
    known = isinstance(padding, int) and 0 <= padding < getattr(config.get_text_config(), "vocab_size", 0)
    return {**fields, "pad_token_id": padding} if known else dict(fields)


def _refuse_unknown_fields(model_type: str, values: Mapping[str, Any]) -> None:
    """transformers keeps any field it is given without using it, so that a typing error would pass unseen."""
    known = AutoConfig.for_model(model_type).to_dict().keys()
    unknown = [name for name in values if name not in known]
    if unknown:
        raise InputError(f"model.{unknown[0]} is not a field of transformers' {model_type} configuration")
