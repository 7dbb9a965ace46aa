"""LoRA adapters in the folders that PEFT writes: what of a base model they change, layer by layer.

A weight becomes ``W + s B A`` with a scale of alpha and rank (Hu et al., "LoRA", 2022; Kalajdzievski, "A rank
stabilization scaling factor", 2023), and its rows have learned lengths on top (Liu et al., "DoRA", 2024).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fusionlab.checkpoints.files import ADAPTER_CONFIG, read_json, read_safetensors
from fusionlab.checkpoints.hub import locate
from fusionlab.checkpoints.weights import read_headers, read_pickled_state
from fusionlab.errors import InputError
from fusionlab.finite import all_finite

SAFETENSORS, PICKLE = "adapter_model.safetensors", "adapter_model.bin"
PREFIX = "base_model.model."
# Inside of a layer's name: the layer's own place, and what of a change it is.
_PART = re.compile(
    r"(?P<module>.+)\.(?P<part>lora_A|lora_B|lora_embedding_A|lora_embedding_B|lora_magnitude_vector)(\.(?P<rest>weight|bias))?"
)
# Patterns of names that no name takes long to be held against.
_NAMES = re.compile(r"\^?([\w.-]|\\\.|\\d\+){1,200}\$?")
# Options under which PEFT computes something else, and the value that leaves all as it is described here.
_PLAIN: dict[str, tuple[Any, ...]] = {
    "layer_replication": (None,),
    "megatron_config": (None,),
    "trainable_token_indices": (None,),
    "target_parameters": (None, [], {}),
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
    "lora_bias", "ensure_weight_tying",
}  # fmt: skip


@dataclass(frozen=True)
class Change:
    """A change of one layer's weight.

    Attributes:
        down: the factor that reads, A: ``(rank, in)``, of a convolution ``(rank, in, *kernel)``.
        up: the factor that writes, B: ``(out, rank)``.
        scale: of the product.
        magnitude: the length of every output's row, ``(out,)``, where it is learned (DoRA).
        bias: what is added to the bias, ``(out,)``, before the scale; None where nothing is.
    """

    down: Tensor
    up: Tensor
    scale: float
    magnitude: Tensor | None = None
    bias: Tensor | None = None

    def changed(self, weight: Tensor, is_turned: bool = False) -> Tensor:
        """The weight with this change, computed in float32 at least and rounded once.

        Args:
            weight: of the base model.
            is_turned: the weight is ``(in, out)``, as of an embedding or of GPT-2's Conv1D.

        Returns:
            The same shape and type.

        Raises:
            ValueError: the shapes do not fit.
        """
        if weight.ndim < 2:
            raise ValueError(f"factors for a weight of shape {tuple(weight.shape)}")
        wide = torch.promote_types(weight.dtype, torch.float32)
        rows = (weight.T if is_turned else weight.flatten(1)).to(wide)
        down, up = self.down.flatten(1).to(wide), self.up.flatten(1).to(wide)
        if down.shape[0] != up.shape[1] or rows.shape != (up.shape[0], down.shape[1]):
            raise ValueError(
                f"factors of shapes {tuple(self.up.shape)} and {tuple(self.down.shape)} for a weight of shape "
                f"{tuple(weight.shape)}"
            )
        rows = rows + self.scale * (up @ down)
        if self.magnitude is not None:
            rows = self.magnitude.flatten().to(wide)[:, None] / torch.linalg.norm(rows, dim=1, keepdim=True) * rows
        return (rows.T if is_turned else rows).reshape(weight.shape).to(weight.dtype)

    def of_rows(self, first: int, end: int, is_turned: bool = False) -> Change:
        """The change of some rows of a weight as it is stored; what it does to the bias is left out.

        Args:
            first: of the rows.
            end: the one behind them.
            is_turned: the weight is ``(in, out)``; then there is no magnitude, which is of whole columns.
        """
        if is_turned:
            return Change(self.down[:, first:end], self.up, self.scale)
        magnitude = None if self.magnitude is None else self.magnitude.flatten()[first:end]
        return Change(self.down, self.up[first:end], self.scale, magnitude)


@dataclass(frozen=True)
class Adapter:
    """An adapter as it is stored.

    Attributes:
        folder: that it was read from.
        base: path or hub id of the base model that it names; None where it names none.
        task: what it was trained for, as PEFT names it, or None.
        changes: by the name of the layer.
        saved: parameters that replace the base model's, by name.
        is_tied: what is tied to a changed parameter changes with it.
    """

    folder: Path
    base: str | None
    task: str | None
    changes: Mapping[str, Change] = field(repr=False)
    saved: Mapping[str, Tensor] = field(repr=False)
    is_tied: bool = False


def base_of(adapter: Adapter, base: str | Path | None = None) -> tuple[str, Path]:
    """The base model of an adapter: its path or hub id, and the local folder.

    Args:
        adapter: as it is stored.
        base: the model to take in place of the one that it names.

    Raises:
        InputError: it names none, or one that is not here.
    """
    named = adapter.base if base is None else str(base)
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
    scales = _Scales.of(config, path)
    file, tensors = _tensors(folder)
    parts: dict[str, dict[str, Tensor]] = {}
    saved = {}
    for name, tensor in tensors.items():
        own = name.removeprefix(PREFIX)
        if (match := _PART.fullmatch(own)) is not None:
            key = match["part"] + (".bias" if match["rest"] == "bias" else "")
            parts.setdefault(match["module"], {})[key] = tensor
        elif "lora_" in own:
            raise InputError(f"{file}: {name} is no part of an adapter that fusionlab reads; expected factors A and B")
        else:
            saved[own.replace(".base_layer.", ".").replace(".modules_to_save.", ".")] = tensor
    changes = {module: _change(module, found, scales, file) for module, found in parts.items()}
    base, task = (config.get(name) for name in ("base_model_name_or_path", "task_type"))
    if not isinstance(base, str | None) or not isinstance(task, str | None):
        raise InputError(f"{path}: base_model_name_or_path is {base!r} and task_type {task!r}; expected names")
    return Adapter(folder, base or None, task, changes, saved, config.get("ensure_weight_tying") is True)


@dataclass(frozen=True)
class _Scales:
    """Alpha and rank of every layer."""

    alpha: float
    alphas: Mapping[str, float]
    is_rank_stabilised: bool
    is_decomposed: bool

    @classmethod
    def of(cls, config: Mapping[str, Any], path: Path) -> _Scales:
        alpha, alphas = config.get("lora_alpha", 8), config.get("alpha_pattern") or {}
        numbers = [alpha, *(alphas.values() if isinstance(alphas, dict) else [None])]
        if any(isinstance(n, bool) or not isinstance(n, int | float) or not math.isfinite(n) for n in numbers):
            raise InputError(f"{path}: lora_alpha is {alpha!r} and alpha_pattern {alphas!r}; expected finite numbers")
        if strange := next((pattern for pattern in alphas if not _NAMES.fullmatch(pattern)), None):
            raise InputError(f"{path}: alpha_pattern holds {strange!r}; expected names of layers, numbers as \\d+")
        return cls(alpha, alphas, config.get("use_rslora") is True, config.get("use_dora") is True)

    def scale(self, module: str, rank: int) -> float:
        """The scale of a layer's product."""
        fitting = (alpha for key, alpha in self.alphas.items() if re.match(rf"(.*\.)?({key})$", module))
        return next(fitting, self.alpha) / (math.sqrt(rank) if self.is_rank_stabilised else rank)


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


def _change(module: str, parts: Mapping[str, Tensor], scales: _Scales, file: Path) -> Change:
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
