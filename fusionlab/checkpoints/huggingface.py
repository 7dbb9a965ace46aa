"""Checkpoints of the transformers library.

Everything goes through ``from_pretrained`` and ``save_pretrained``: the names in the files are not the names in the
module (transformers renames weights as it loads them), so raw files are only looked at for damage and dtype.
"""

import copy
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, PretrainedConfig, PreTrainedModel
from transformers.utils import GENERATION_CONFIG_NAME
from typing_extensions import TypeIs

from fusionlab.checkpoints.files import (
    CONFIG,
    SAFETENSORS_INDEX,
    read_config,
    read_json,
    weight_files,
)
from fusionlab.checkpoints.fp8 import dequantised, is_read
from fusionlab.checkpoints.huggingface_config import auto_class_of, load_config, model_class, parse_config
from fusionlab.checkpoints.own_types import restore_types
from fusionlab.checkpoints.parameters import refuse_differences
from fusionlab.checkpoints.quiet import quiet
from fusionlab.checkpoints.sizes import Stored, no_larger
from fusionlab.checkpoints.weights import numbers_in, read_headers, read_state, refuse_integers
from fusionlab.dtypes import main_dtype, name_of
from fusionlab.errors import InputError, first_line

# A number that older versions of transformers saved beside attention's mask (``attn.bias``), as a constant; classes of
# today pass over the mask, and not all of them over the number.
_CONSTANT = re.compile(r"(.*\.)?(attn|attention|crossattention)\.masked_bias")


def is_transformers(model: nn.Module) -> TypeIs[PreTrainedModel]:
    """True if `model` is one of the transformers library's."""
    return isinstance(model, PreTrainedModel)


def read_folder(folder: Path) -> PreTrainedModel:
    """Load a transformers checkpoint folder as the class that its config names, in the dtypes it is stored in.

    Args:
        folder: a folder with ``config.json`` and safetensors (one file or shards) or ``pytorch_model.bin``.

    Returns:
        The model, in eval mode.

    Raises:
        InputError: anything missing, unknown, damaged, or weights that are not exactly the class's.
    """
    config = load_config(folder)
    return _load_exactly(model_class(config, folder / CONFIG), config, folder)


def rebuild(class_name: str, config: dict[str, Any], state: Mapping[str, Tensor], source: Path) -> PreTrainedModel:
    """Load a model from a description and a state dict instead of a folder.

    Args:
        class_name: name of the model class; empty for the one that the config names.
        config: the transformers configuration as a plain mapping.
        state: tensors by parameter name.
        source: the file that they come from, for messages.

    Returns:
        The model, in eval mode.

    Raises:
        InputError: unknown class, or parameters that are not exactly the class's.
    """
    parsed = parse_config(config, source)
    if class_name:
        parsed.architectures = [class_name]
    cls = model_class(parsed, source)
    _refuse_oversized(cls, parsed, source, Stored.of(state.values()), _integers(state))
    loaded = main_dtype(state)
    model, info = _from_pretrained(cls, None, parsed, source, state_dict=dict(state), dtype=loaded)
    refuse_differences(source, type(model).__name__, *_info(info))
    restore_types(model, numbers_in(state), loaded)
    return model.eval()


def load_with_head(
    folder: Path, auto_class: Any, dtype: torch.dtype | None = torch.float32, /, **overrides: Any
) -> tuple[PreTrainedModel, list[str]]:
    """Load the body of a checkpoint under a task's head; only head parameters may be new.

    Args:
        folder: a transformers checkpoint folder.
        auto_class: the task's auto class, such as ``AutoModelForImageClassification``, or the class itself.
        dtype: of the model; the one that the folder is stored in if None.
        overrides: configuration values to change, such as ``num_labels``.

    Returns:
        The model and the names of its freshly initialised parameters, empty when the head was kept.

    Raises:
        InputError: the type has no such head, or parameters of the body are missing or do not fit.
    """
    config = load_config(folder)
    for name, value in overrides.items():
        setattr(config, name, value)
    is_one = isinstance(auto_class, type) and issubclass(auto_class, PreTrainedModel)
    cls = auto_class if is_one else auto_class_of(config, auto_class, folder)
    model, info = _load(cls, config, folder, dtype)
    missing, _, mismatched = _info(info)
    body = f"{model.base_model_prefix}."

    def in_head(name: str) -> bool:
        # A pooler sits inside the body but is only trained together with a head.
        return not name.startswith(body) or ".pooler." in name

    refuse_differences(
        folder,
        cls.__name__,
        [name for name in missing if not in_head(name)],
        (),  # what is left over belongs to the old head
        [entry for entry in mismatched if not in_head(entry[0])],
    )
    return model, sorted({*missing, *(name for name, _, _ in mismatched)})


def _load_exactly(cls: type[PreTrainedModel], config: PretrainedConfig, folder: Path) -> PreTrainedModel:
    files = weight_files(folder)
    model, info = _load(cls, config, folder, None)
    named = files[0] if len(files) == 1 else folder / SAFETENSORS_INDEX
    refuse_differences(named, cls.__name__, *_info(info))
    return model.eval()


def _load(
    cls: type[PreTrainedModel], config: PretrainedConfig, folder: Path, dtype: torch.dtype | None
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """Load a folder in `dtype`, or in those it is stored in, without transformers ever unpickling on its own."""
    files = weight_files(folder)
    described = read_config(folder)
    if files[0].suffix == ".safetensors" and not is_read(described):
        headers = read_headers(files)  # also finds damage first, with a sentence that names the file
        _refuse_oversized(cls, config, folder, headers.stored, headers.integers)
        kept = dtype or headers.dtype or "auto"
        model, info = _from_pretrained(cls, folder, config, folder, dtype=kept, use_safetensors=True)
        if dtype is None and headers.dtype is not None:
            restore_types(model, headers.tensors, headers.dtype)
        return model, info
    state = read_state(files)
    if is_read(described):
        state = dequantised(state, described, folder)
    _refuse_oversized(cls, config, folder, Stored.of(state.values()), _integers(state))
    loaded = dtype or main_dtype(state)
    model, info = _from_pretrained(cls, None, config, folder, dtype=loaded, state_dict=dict(state))
    if dtype is None:
        restore_types(model, numbers_in(state), loaded)
    if (folder / GENERATION_CONFIG_NAME).is_file():
        model.generation_config = _generation_config(folder)
    return model, info


def _generation_config(folder: Path) -> GenerationConfig:
    """The settings of generation in a folder, marked as read: others than those are written only if all are in use."""
    path = folder / GENERATION_CONFIG_NAME
    read_json(path)  # finds damage first, with a sentence that names the file
    try:
        with quiet():
            return GenerationConfig.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:
        # Any value in it may be of any type.
        raise InputError(f"{path} is no configuration of a generation ({first_line(error)})") from error


def _refuse_oversized(
    cls: type[PreTrainedModel], config: PretrainedConfig, source: Path, stored: Stored, integers: Mapping[str, int]
) -> None:
    """Refuse a config that asks for more than the weights hold, and integers in place of parameters."""
    refuse_integers(source, integers, _without_memory(cls, config, source, stored))


def _integers(state: Mapping[str, Tensor]) -> dict[str, int]:
    """Tensors of a state dict that hold no floating-point numbers, with their number of dimensions."""
    return {name: tensor.ndim for name, tensor in state.items() if not tensor.is_floating_point()}


def _without_memory(
    cls: type[PreTrainedModel], config: PretrainedConfig, source: Path, stored: Stored
) -> dict[str, Tensor]:
    """The state dict of a class, as shapes and dtypes alone.

    Raises:
        InputError: a configuration that the class refuses, or that asks for far more than is stored.
    """
    try:
        with quiet(), no_larger(stored, source):
            return cls(copy.deepcopy(config)).state_dict()
    except InputError:
        raise
    except Exception as error:
        # As in _from_pretrained: any class, any configuration, any exception.
        raise InputError(f"{source}: {cls.__name__} cannot be built from its config ({first_line(error)})") from error


def _from_pretrained(
    cls: type[PreTrainedModel], folder: Path | None, config: PretrainedConfig, source: Path, **keywords: Any
) -> tuple[PreTrainedModel, dict[str, Any]]:
    try:
        with quiet():
            # Mismatched sizes are let through here so that they can be named; the caller refuses them.
            # from_pretrained's declared type does not know that output_loading_info makes it return a pair.
            loader: Any = cls.from_pretrained
            model, info = loader(
                None if folder is None else str(folder),
                config=config,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                local_files_only=True,
                **keywords,
            )
            return model, info
    except Exception as error:
        # Building any of several hundred classes from a user's config can fail in any way; all of them mean the same.
        raise InputError(f"{source}: {cls.__name__} cannot be loaded from it ({first_line(error)})") from error


def _info(info: Mapping[str, Any]) -> tuple[set[str], set[str], list[tuple[str, tuple[int, ...], tuple[int, ...]]]]:
    mismatched = [(name, tuple(stored), tuple(expected)) for name, stored, expected in info["mismatched_keys"]]
    unexpected = {name for name in info["unexpected_keys"] if not _CONSTANT.fullmatch(name)}
    return set(info["missing_keys"]), unexpected, mismatched


def parameter_names(class_name: str, config: dict[str, Any], source: Path, stored: Stored) -> set[str]:
    """The names in the state dict of the class that a description names, without making its weights.

    Args:
        class_name: name of the model class; empty for the one that the config names.
        config: the transformers configuration as a plain mapping.
        source: where it comes from, for messages.
        stored: how much there is to fill them.

    Returns:
        Parameter and buffer names.

    Raises:
        InputError: an unknown class, or a configuration that it refuses, or that asks for far more than is stored.
    """
    parsed = parse_config(config, source)
    if class_name:
        parsed.architectures = [class_name]
    return set(_without_memory(model_class(parsed, source), parsed, source, stored))


def write_folder(
    model: PreTrainedModel, output: Path, like: Path | None = None, shard_bytes: int | None = None
) -> None:
    """Write a transformers model into an empty folder, as safetensors.

    Args:
        model: the model.
        output: an empty folder.
        like: a checkpoint folder; if it is sharded, the shards are made as large as its largest.
        shard_bytes: the size of shards, where it is not to be that.
    """
    shards = [] if like is None else weight_files(like)
    size: dict[str, Any] = {"max_shard_size": max(shard.stat().st_size for shard in shards)} if len(shards) > 1 else {}
    if shard_bytes is not None:
        size = {"max_shard_size": shard_bytes}
    settings: Any = getattr(model, "generation_config", None)
    with quiet():
        if settings is None:
            model.save_pretrained(output, **size)
            _name_main_type(model, output / CONFIG)
            return
        model.generation_config = GenerationConfig()
        try:
            model.save_pretrained(output, **size)
        finally:
            model.generation_config = settings
    _name_main_type(model, output / CONFIG)
    # Published models have settings that transformers reads and refuses to write: a temperature, and no sampling.
    if (output / GENERATION_CONFIG_NAME).is_file():
        settings.to_json_file(output / GENERATION_CONFIG_NAME)


def _name_main_type(model: PreTrainedModel, path: Path) -> None:
    """Let a config name the type that most numbers are in; transformers names that of the first parameter."""
    if (main := main_dtype(model.state_dict())) != model.dtype:
        config = read_json(path) | {"dtype": name_of(main)}
        path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
