"""Weights of 8 bits with scales, as they are published, and the other quantised kinds, which are refused.

A weight of type F8_E4M3 stands beside its scales: one for each block of rows and columns (``weight_scale_inv``, as
DeepSeek-V3 stores it, see its ``inference/kernel.py``), or one for each row or for all (``weight_scale``, as
compressed-tensors stores it). Both are factors: the weight is the stored number times its scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fusionlab.checkpoints.files import CONFIG, read_config, weight_files
from fusionlab.dtypes import DTYPES, name_of
from fusionlab.errors import InputError

Shape = tuple[int, ...]
Described = Mapping[str, tuple[torch.dtype, Shape]]

SCHEME = "quantization_config"
FP8 = torch.float8_e4m3fn
# Its name in safetensors files.
_STORED = "F8_E4M3"
# What quantisers keep for running a model beside its weights.
_OF_ACTIVATIONS = (
    ".input_scale",
    ".input_scale_ub",
    ".output_scale",
    ".k_scale",
    ".v_scale",
    ".q_scale",
    ".activation_scale",
)
_SAVE = "load it with transformers, call its dequantize() and save_pretrained"
# The way on, by the name that a config has for the kind.
_WAYS = {
    "bitsandbytes": _SAVE,
    "gptq": "take the model that it was quantised from",
    "awq": "take the model that it was quantised from",
    "gguf": "load it by from_pretrained(folder, gguf_file=FILE) of transformers and save_pretrained",
}


@dataclass(frozen=True)
class Scale:
    """The scales of one weight.

    Attributes:
        name: of the tensor that has them.
        shape: of them as rows and columns of blocks.
        block: rows and columns that share one.
    """

    name: str
    shape: tuple[int, int]
    block: tuple[int, int]

    def of(self, numbers: Tensor, start: int, width: int, scales: Tensor, dtype: torch.dtype) -> Tensor:
        """A stretch of the weight.

        Args:
            numbers: as they are stored, flattened.
            start: the first number's place in the flattened weight.
            width: numbers of a row.
            scales: all of the weight's.
            dtype: to round to, once.

        Returns:
            The same count of numbers.
        """
        if not len(numbers):
            return numbers.to(dtype)
        first, last = start // width, (start + len(numbers) - 1) // width
        rows = scales.float().reshape(self.shape)[torch.arange(first, last + 1) // self.block[0]]
        factors = rows.repeat_interleave(self.block[1], 1)[:, :width].flatten()
        return (numbers.float() * factors[start - first * width :][: len(numbers)]).to(dtype)


def scales_of(tensors: Described, config: Mapping[str, Any], source: Path) -> dict[str, Scale]:
    """The scales of all weights of 8 bits.

    Args:
        tensors: type and shape, by name.
        config: of the model.
        source: where it lies, for messages.

    Raises:
        InputError: a weight whose scales are missing or do not fit it.
    """
    found = {}
    for name, (dtype, shape) in tensors.items():
        if dtype == FP8:
            own = next((own for end in ("_scale_inv", "_scale") if (own := f"{name}{end}") in tensors), None)
            if own is None or len(shape) != 2 or not tensors[own][0].is_floating_point:
                raise InputError(
                    f"{source}: parameter {name} is stored in 8 bits and has no scales ({name}_scale_inv or "
                    f"{name}_scale); expected both in one download"
                )
            found[name] = _scale(own, tensors[own][1], shape, config, source)
    return found


def _scale(name: str, held: Shape, shape: Shape, config: Mapping[str, Any], source: Path) -> Scale:
    rows, columns = shape
    count = torch.Size(held).numel()
    if count == 1:
        return Scale(name, (1, 1), (rows, columns))
    if held in ((rows,), (rows, 1)):
        return Scale(name, (rows, 1), (1, columns))
    block = (config.get(SCHEME) or {}).get("weight_block_size")
    sizes = block if isinstance(block, list) and all(isinstance(size, int) and size > 0 for size in block) else []
    if len(sizes) == 2 and held == (-(-rows // sizes[0]), -(-columns // sizes[1])):
        return Scale(name, (held[0], held[1]), (sizes[0], sizes[1]))
    raise InputError(
        f"{source}: {name} has shape {held} for a weight of shape {shape}; expected one scale, one for each row, or "
        f"one for each block of the config's weight_block_size ({block})"
    )


def is_of_activations(name: str) -> bool:
    """True for what a quantiser keeps for running a model beside its weights."""
    return name.endswith(_OF_ACTIVATIONS)


def type_of(config: Mapping[str, Any]) -> torch.dtype:
    """The type that weights of 8 bits are read in: the config's own, or bfloat16.

    Raises:
        InputError: a type that is no name.
    """
    named = config.get("dtype") or config.get("torch_dtype")
    if named is not None and not isinstance(named, str):
        raise InputError(f"the config's dtype is {named!r}; expected the name of a type")
    return DTYPES.get(str(named), torch.bfloat16)


def without_scheme(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config of the same model, not quantised."""
    return {name: value for name, value in config.items() if name != SCHEME}


def is_read(config: Mapping[str, Any]) -> bool:
    """True for the kinds of quantisation that are read: weights of 8-bit floating-point numbers."""
    scheme = config.get(SCHEME)
    if not isinstance(scheme, Mapping):
        return False
    kind = scheme.get("quant_method")
    return kind in ("fp8", "fbgemm_fp8") or (kind == "compressed-tensors" and scheme.get("format") == "float-quantized")


def refuse_quantised(config: Mapping[str, Any], source: Path) -> None:
    """Refuse kinds of quantisation that are not read.

    Args:
        config: of a model.
        source: its file.

    Raises:
        InputError: names the kind and the way on.
    """
    scheme = config.get(SCHEME)
    if scheme and not is_read(config):
        kind = scheme.get("quant_method") if isinstance(scheme, Mapping) else None
        if isinstance(scheme, Mapping) and kind is None and any(str(key).startswith("load_in_") for key in scheme):
            kind = "bitsandbytes"
        way = _WAYS.get(str(kind), "take the model that it was quantised from, or dequantise it")
        raise InputError(
            f"{source}: the checkpoint is quantised ({kind or 'by a kind that it does not name'}), but weights in full "
            f"or half precision, or in FP8 with scales, were expected; dequantise it first: {way}"
        )


def dequantised(state: Mapping[str, Tensor], config: Mapping[str, Any], source: Path) -> dict[str, Tensor]:
    """The parameters of a model without scales; those of 8 bits in the config's type, others as they are.

    Args:
        state: as it is stored.
        config: of the model.
        source: where it lies, for messages.

    Raises:
        InputError: as `scales_of`.
    """
    found = scales_of({name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in state.items()}, config, source)
    used, dtype = {scale.name for scale in found.values()}, type_of(config)
    read = {}
    for name, tensor in state.items():
        if name in found:
            scales = state[found[name].name]
            read[name] = found[name].of(tensor.flatten(), 0, tensor.shape[1], scales, dtype).reshape(tensor.shape)
        elif name not in used and not is_of_activations(name):
            read[name] = tensor
    return read


def has_scaled(folder: Path) -> bool:
    """True if a folder has weights of 8 bits that are read by dequantising, whatever else its config says."""
    if not (folder / CONFIG).is_file() or not is_read(read_config(folder)):
        return False
    for file in weight_files(folder):
        if file.suffix == ".safetensors":
            try:
                with safe_open(file, framework="pt") as tensors:
                    types = {tensors.get_slice(name).get_dtype() for name in tensors.keys()}  # noqa: SIM118
            except (SafetensorError, OSError):
                continue  # told by whoever reads the model
            if _STORED in types:
                return True
    return False


def note(source: str, config: Mapping[str, Any]) -> str:
    """A sentence on a model that was dequantised."""
    return f"{source} is stored in FP8: it is read by dequantising, as {name_of(type_of(config))}."
