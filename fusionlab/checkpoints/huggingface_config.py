"""Configurations of the transformers library, and the model classes that they name."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import transformers
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel

from fusionlab.checkpoints.files import CONFIG, read_config
from fusionlab.checkpoints.fp8 import refuse_quantised, without_scheme
from fusionlab.checkpoints.quiet import quiet
from fusionlab.checkpoints.sizes import refuse_absurd
from fusionlab.errors import InputError, first_line

# Numbers that JSON has no signs for, such as the time step limit of Mamba-2, in files of transformers.
_FLOAT, _FLOATS = "__float__", ("Infinity", "-Infinity", "NaN")


def load_config(folder: Path) -> PretrainedConfig:
    """The configuration of a transformers folder.

    Args:
        folder: the checkpoint folder.

    Returns:
        The configuration.

    Raises:
        InputError: no config, an unknown model type, or a kind of quantisation that is not read.
    """
    return parse_config(read_config(folder), folder / CONFIG)


def parse_config(content: Mapping[str, Any], source: Path) -> PretrainedConfig:
    """A transformers configuration from its plain mapping; never runs code that a checkpoint brings along.

    Args:
        content: what ``config.json`` holds.
        source: where it comes from, for messages.

    Returns:
        The configuration.

    Raises:
        InputError: an unknown model type, values that the type refuses, or a kind of quantisation that is not read.
    """
    values = _with_floats(content)
    model_type = values.pop("model_type", None)
    if not isinstance(model_type, str) or model_type not in transformers.CONFIG_MAPPING:
        raise InputError(
            f"{source}: model type {model_type!r} is not one that transformers {transformers.__version__} knows "
            f"(code that comes with a checkpoint is never run)"
        )
    refuse_quantised(values, source)
    values = without_scheme(values)  # weights of 8 bits are read by dequantising
    refuse_absurd(values, source)
    try:
        with quiet():
            return type(AutoConfig.for_model(model_type)).from_dict(values)
    except Exception as error:
        # Each configuration class validates its fields in its own way and with its own exceptions.
        raise InputError(f"{source}: not a valid {model_type} configuration ({first_line(error)})") from error


def _with_floats(value: Any) -> Any:
    """JSON with infinities and NaN in place of what transformers writes for them."""
    if isinstance(value, Mapping):
        if list(value) == [_FLOAT] and value[_FLOAT] in _FLOATS:
            return float(value[_FLOAT])
        return {key: _with_floats(inner) for key, inner in value.items()}
    return [_with_floats(inner) for inner in value] if isinstance(value, list) else value


def model_class(config: PretrainedConfig, source: Path) -> type[PreTrainedModel]:
    """The class that a configuration names, or the bare encoder of its type when it names none.

    Args:
        config: the configuration.
        source: where it comes from, for messages.

    Returns:
        The class.

    Raises:
        InputError: transformers has no such model class.
    """
    names: Any = config.architectures
    if not isinstance(names, list | None) or not all(isinstance(name, str) for name in names or ()):
        raise InputError(f"{source}: architectures is {names!r}; expected a list with the name of a class")
    if not names:
        return auto_class_of(config, AutoModel, source)
    found = getattr(transformers, names[0], None)
    if not (isinstance(found, type) and issubclass(found, PreTrainedModel)):
        raise InputError(
            f"{source}: architectures names {names[0]!r}, which is not a model class of transformers "
            f"{transformers.__version__}"
        )
    return found


def auto_class_of(config: PretrainedConfig, auto_class: Any, source: Path) -> type[PreTrainedModel]:
    """The class that one of transformers' auto classes has for a configuration.

    Args:
        config: the configuration.
        auto_class: such as ``AutoModelForImageClassification``.
        source: where it comes from, for messages.

    Raises:
        InputError: the type has none.
    """
    if type(config) not in auto_class._model_mapping:
        raise InputError(f"{source}: model type {config.model_type!r} has no {auto_class.__name__}")
    found = auto_class._model_mapping[type(config)]
    # A few types list several classes, the usual one first.
    return found[0] if isinstance(found, tuple) else found


def plain_config(model: PreTrainedModel) -> dict[str, Any]:
    """The configuration of a model as data that JSON can hold, with the class it belongs to.

    Args:
        model: a transformers model.

    Returns:
        A plain mapping, as in ``config.json``.
    """
    content = json.loads(model.config.to_json_string(use_diff=False))
    return {**content, "architectures": [type(model).__name__]}
