"""LoRA adapters in the folders that PEFT writes: what of a base model they change, layer by layer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from fusionlab.checkpoints.changes import Change, Stack
from fusionlab.checkpoints.files import ADAPTER_CONFIG, read_json, read_safetensors
from fusionlab.checkpoints.hub import locate
from fusionlab.checkpoints.weights import read_headers, read_pickled_state
from fusionlab.checkpoints.wrapped import Scales, Wrapped, named_in, unwrapped
from fusionlab.errors import InputError
from fusionlab.finite import all_finite

SAFETENSORS, PICKLE = "adapter_model.safetensors", "adapter_model.bin"
PREFIX = "base_model.model."
# Inside of a layer's name: the layer's own place, and what of a change it is.
_PART = re.compile(
    r"(?P<module>.+)\.(?P<part>lora_A|lora_B|lora_embedding_A|lora_embedding_B|lora_magnitude_vector)(\.(?P<rest>weight|bias))?"
)
# What is wrapped, inside of a parameter's name.
_INNER = re.compile(r"(\.base_layer)+\.")
# Options under which PEFT computes something else, and the value that leaves all as it is described here.
_PLAIN: dict[str, tuple[Any, ...]] = {
    "layer_replication": (None,),
    "megatron_config": (None,),
    "trainable_token_indices": (None,),
    "alora_invocation_tokens": (None,),
    "arrow_config": (None,),
    "use_qalora": (None, False),
    "use_bdlora": (None, False),
    "monteclora_config": (None,),
    "velora_config": (None,),
    "kasa_config": (None,),
    # Others begin with another base model, or their files are told from plain ones by nothing.
    "init_lora_weights": (None, True, False, "gaussian", "eva", "orthogonal"),
}
# What else may stand there: read below, told by the weights, or of training alone.
_READ = {
    "peft_type", "task_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision", "inference_mode",
    "r", "target_modules", "exclude_modules", "lora_alpha", "lora_dropout", "fan_in_fan_out", "bias", "use_rslora",
    "modules_to_save", "layers_to_transform", "layers_pattern", "rank_pattern", "alpha_pattern", "megatron_core",
    "loftq_config", "eva_config", "corda_config", "lora_ga_config", "use_dora", "qalora_group_size", "runtime_config",
    "lora_bias", "ensure_weight_tying", "target_parameters",
}  # fmt: skip


@dataclass(frozen=True)
class Adapter:
    """An adapter as it is stored.

    Attributes:
        folder: that it was read from.
        base: path or hub id of the base model that it names; None where it names none.
        task: what it was trained for, as PEFT names it, or None.
        changes: of weights, by the name of the layer.
        saved: parameters that replace the base model's, by name.
        is_tied: what is tied to a changed parameter changes with it.
        wrapped: changes of parameters by name, by their module; the class says which is whose (see `placed`).
        revision: of the base model; None for the newest.
    """

    folder: Path
    base: str | None
    task: str | None
    changes: Mapping[str, Change] = field(repr=False)
    saved: Mapping[str, Tensor] = field(repr=False)
    is_tied: bool = False
    wrapped: Mapping[str, Wrapped] = field(default_factory=dict, repr=False)
    revision: str | None = None


def base_of(adapter: Adapter, base: str | Path | None = None) -> tuple[str, Path]:
    """The base model of an adapter: its path or hub id, and the local folder.

    Args:
        adapter: as it is stored.
        base: the model to take in place of the one that it names.

    Raises:
        InputError: it names none, one that is not here, or one revision of it.
    """
    named = adapter.base if base is None else str(base)
    if base is None and adapter.revision not in (None, "main"):
        raise InputError(
            f"{adapter.folder / ADAPTER_CONFIG}: revision is {adapter.revision!r}, and fusionlab reads the newest of "
            f"{named}; expected --base, a folder with that revision"
        )
    if named is None:
        raise InputError(f"{adapter.folder / ADAPTER_CONFIG} names no base model; expected one, or --base")
    try:
        return named, locate(named)
    except InputError as error:
        if base is not None:
            raise
        raise InputError(
            f"{adapter.folder / ADAPTER_CONFIG} names the base model {named}, which is not here ({error}); expected "
            f"--base"
        ) from error


def read_adapter(folder: Path) -> Adapter:
    """Read an adapter folder, without running any code in it.

    Args:
        folder: with ``adapter_config.json``, and ``adapter_model.safetensors`` or ``adapter_model.bin``.

    Returns:
        The adapter.

    Raises:
        InputError: one sentence that names the file, the key or parameter and what was expected.
    """
    path = folder / ADAPTER_CONFIG
    config = read_json(path)
    if (kind := config.get("peft_type")) != "LORA":
        raise InputError(
            f"{path} is of an adapter of type {kind!r}; expected LORA, or a model merged by PEFT's merge_and_unload"
        )
    for name, value in config.items():
        if value not in _PLAIN.get(name, (value,) if name in _READ else (None, False, "", [], {})):
            raise InputError(
                f"{path}: {name} is {value!r}, which fusionlab does not read; expected a model merged by PEFT's "
                f"merge_and_unload"
            )
    scales, targets = Scales.of(config, path), _targets(config, path)
    file, tensors = _tensors(folder)
    parts: dict[str, dict[str, Tensor]] = {}
    saved: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        own = name.removeprefix(PREFIX)
        if ".original_module." in own:
            continue  # the base model's own, of a module that is saved whole too
        if (match := _PART.fullmatch(own)) is not None:
            key = match["part"] + (".bias" if match["rest"] == "bias" else "")
            parts.setdefault(match["module"], {})[key] = tensor
        elif "lora_" in own:
            raise InputError(f"{file}: {name} is no part of an adapter that fusionlab reads; expected factors A and B")
        else:
            saved[_INNER.sub(".", own).replace(".modules_to_save.", ".")] = tensor
    changes = {module: _change(module, found, scales, file) for module, found in parts.items()}
    wrapped = _wrapped(changes, targets, scales, file)
    base, task = (config.get(name) for name in ("base_model_name_or_path", "task_type"))
    if not isinstance(base, str | None) or not isinstance(task, str | None):
        raise InputError(f"{path}: base_model_name_or_path is {base!r} and task_type {task!r}; expected names")
    is_tied = config.get("ensure_weight_tying") is True
    revision = config.get("revision")
    return Adapter(folder, base or None, task, changes, saved, is_tied, wrapped, revision and str(revision))


def placed(adapter: Adapter, model: nn.Module, base: object) -> tuple[dict[str, Change], dict[str, Stack]]:
    """The changes of an adapter in a class: of weights by layer, and of parameters changed by name, by their names.

    Args:
        adapter: as it is stored.
        model: of the class, with weights or without.
        base: what the base model is called.

    Raises:
        InputError: parameters that the class has not, or in other shapes.
    """
    changes, stacks = dict(adapter.changes), dict[str, Stack]()
    modules = dict(model.named_modules())
    try:
        for name, wrapped in adapter.wrapped.items():
            found = wrapped.stacks(name, modules.get(name, nn.Identity()))
            stacks |= found
            if not found:
                changes[name] = wrapped.levels[-1]
        if foreign := {name: changes.pop(name) for name in list(changes) if name not in modules}:
            from fusionlab.checkpoints.listed import gathered  # noqa: PLC0415 - imports transformers

            renamed, listed = gathered(foreign, model)
            changes, stacks = changes | renamed, stacks | listed
    except ValueError as error:
        raise InputError(f"{adapter.folder}: {error} in {base}; expected the adapter's own base model") from error
    return changes, stacks


def _targets(config: Mapping[str, Any], path: Path) -> list[str]:
    """The parameters that an adapter changes by name."""
    targets = config.get("target_parameters") or []
    if not isinstance(targets, list) or not all(isinstance(target, str) and target for target in targets):
        raise InputError(f"{path}: target_parameters is {targets!r}; expected a list of names of parameters")
    return targets


def _wrapped(changes: dict[str, Change], targets: Sequence[str], scales: Scales, file: Path) -> dict[str, Wrapped]:
    """The changes that may be of parameters by name, taken out of the others."""
    levels: dict[str, dict[int, Change]] = {}
    for module in list(changes) if targets else ():
        name, depth = unwrapped(module)
        if named_in(targets, name):
            levels.setdefault(name, {})[depth] = changes.pop(module)
    for name, found in levels.items():
        if sorted(found) != list(range(len(found))):
            raise InputError(f"{file} holds no factors of every parameter of {name}; expected one pair for each")
    return {
        name: Wrapped(named_in(targets, name), tuple(found[depth] for depth in sorted(found, reverse=True)), scales)
        for name, found in levels.items()
    }


def _tensors(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    """The file of an adapter's weights, and what is in it."""
    if (folder / SAFETENSORS).is_file():
        read_headers([folder / SAFETENSORS])
        found = read_safetensors(folder / SAFETENSORS)
        return folder / SAFETENSORS, found
    if (folder / PICKLE).is_file():
        found = read_pickled_state([folder / PICKLE])
        return folder / PICKLE, found
    raise InputError(f"{folder} has no {SAFETENSORS} or {PICKLE}; expected the weights of the adapter in one of them")


def _change(module: str, parts: Mapping[str, Tensor], scales: Scales, file: Path) -> Change:
    """The change of one layer out of its parts."""
    is_embedding = "lora_embedding_A" in parts
    names = ("lora_embedding_A", "lora_embedding_B") if is_embedding else ("lora_A", "lora_B")
    missing = [name for name in names if name not in parts]
    if missing:
        raise InputError(f"{file} holds no {missing[0]} of {module}; expected both factors of every layer")
    down, up = (parts[name] for name in names)
    if not all(factor.is_floating_point() and factor.ndim >= 2 and factor.numel() for factor in (down, up)):
        raise InputError(
            f"{file}: the factors of {module} are {up.dtype} {tuple(up.shape)} and {down.dtype} {tuple(down.shape)}; "
            f"expected matrices of floating-point numbers"
        )
    for name, tensor in parts.items():
        if not all_finite(tensor):
            raise InputError(f"{file}: {name} of {module} holds values that are not finite; expected numbers")
    magnitude = parts.get("lora_magnitude_vector")
    if scales.is_decomposed and magnitude is None:
        raise InputError(f"{file} holds no lora_magnitude_vector of {module}; expected one, as use_dora says")
    return Change(down, up, scales.scale(module, down.shape[0]), magnitude, parts.get("lora_B.bias"))
