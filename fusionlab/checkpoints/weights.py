"""The content of weight files, looked at before a model is made of it: dtypes, sizes, and what no model is made of."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fusionlab.checkpoints.files import (
    SAFETENSORS,
    SAFETENSORS_INDEX,
    damaged,
    read_json,
    read_pickle,
    read_safetensors,
)
from fusionlab.checkpoints.sizes import Stored
from fusionlab.errors import InputError

_SAFETENSORS_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclasses.dataclass(frozen=True)
class StoredNumbers:
    """A tensor of floating-point numbers as it is stored."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    read: Callable[[], Tensor] = dataclasses.field(repr=False)
    """Reads it."""


@dataclasses.dataclass(frozen=True)
class Headers:
    """Dtypes and sizes that the headers of safetensors files name."""

    dtype: torch.dtype | None
    """The floating dtype that most of the numbers are in; None where there is none of at least 16 bits."""
    stored: Stored
    integers: dict[str, int]
    """Tensors that hold no floating-point numbers, with their number of dimensions."""
    tensors: dict[str, StoredNumbers]
    """Tensors of floating-point numbers of at least 16 bits."""


def read_headers(files: Iterable[Path]) -> Headers:
    """Dtypes and sizes of the weights of a checkpoint, without reading them.

    Args:
        files: safetensors files, which together hold each tensor once.

    Returns:
        Dtypes and sizes.

    Raises:
        InputError: a file is truncated or corrupt, or a tensor is in two files, or in none of them though their index
            names it.
    """
    elements: Counter[torch.dtype] = Counter()
    integers: dict[str, int] = {}
    found: dict[str, StoredNumbers] = {}
    owners: dict[str, Path] = {}
    numbers = 0
    for file in files:
        try:
            with safe_open(file, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118 - not a mapping
                    piece = tensors.get_slice(name)
                    size, stored = torch.Size(piece.get_shape()), piece.get_dtype()
                    refuse_second(name, file, owners)
                    numbers += size.numel()
                    dtype = _SAFETENSORS_DTYPES.get(stored)
                    if dtype is not None:
                        elements[dtype] += size.numel()
                        found[name] = StoredNumbers(dtype, tuple(size), partial(_read, file, name))
                    if stored[0] in "IUB" and stored != "BF16":
                        integers[name] = len(size)
        except (SafetensorError, OSError, RuntimeError, OverflowError) as error:
            raise damaged(file, error) from error
    _refuse_lacking(owners)
    dtype = elements.most_common(1)[0][0] if elements else None
    return Headers(dtype, Stored(numbers, len(owners)), integers, found)


def numbers_in(state: Mapping[str, Tensor]) -> dict[str, StoredNumbers]:
    """The tensors of floating-point numbers in a state dict, as `Headers` has those of files."""
    return {
        name: StoredNumbers(tensor.dtype, tuple(tensor.shape), partial(state.__getitem__, name))
        for name, tensor in state.items()
        if tensor.is_floating_point()
    }


def _read(file: Path, name: str) -> Tensor:
    with safe_open(file, framework="pt") as tensors:
        return tensors.get_tensor(name)


def _refuse_lacking(owners: Mapping[str, Path]) -> None:
    """Refuse shards that lack a tensor which the index beside them names."""
    folders = {file.parent for file in owners.values() if file.name != SAFETENSORS}
    for index in (folder / SAFETENSORS_INDEX for folder in folders):
        named = read_json(index).get("weight_map") if index.is_file() else None
        for name, file in (named or {}).items():
            if name not in owners:
                raise InputError(
                    f"{index} says that {file} holds the parameter {name}, and no shard does; expected all files of "
                    f"one download"
                )


def refuse_second(name: str, file: Path, owners: dict[str, Path]) -> None:
    """Refuse a tensor that another shard holds too: which of them is meant cannot be known.

    Args:
        name: of the tensor.
        file: that holds it.
        owners: the files of all tensors so far; this one is added.

    Raises:
        InputError: names both files.
    """
    if name in owners:
        raise InputError(f"{file} holds the parameter {name}, which {owners[name].name} holds too; expected it once")
    owners[name] = file


def refuse_integers(source: Path, integers: Mapping[str, int], expected: Mapping[str, Tensor]) -> None:
    """Refuse integers where a model has floating-point numbers: they are of a quantised model, or damaged.

    Args:
        source: the file or folder they come from.
        integers: names of tensors of integers or truth values, with their number of dimensions.
        expected: the model's state dict. Files may have other names for some of it (transformers renames weights), so
            that whatever is called a weight, or a bias of one dimension, is taken for a parameter too.

    Raises:
        InputError: names the first.
    """
    for name, dimensions in sorted(integers.items()):
        is_parameter = name in expected and expected[name].is_floating_point()
        if is_parameter or name.endswith("weight") or (name.endswith("bias") and dimensions == 1):
            raise InputError(f"{source}: parameter {name} holds integers, but floating-point numbers were expected")


def read_state(files: Sequence[Path]) -> dict[str, Tensor]:
    """The tensors in weight files of either kind.

    Args:
        files: all of a checkpoint, which together hold each tensor once.

    Raises:
        InputError: as `read_headers` and `read_pickled_state`.
    """
    if files[0].suffix != ".safetensors":
        return read_pickled_state(files)
    read_headers(files)  # finds damage, and a tensor that two files hold
    return {name: tensor for file in files for name, tensor in read_safetensors(file).items()}


def read_pickled_state(files: Iterable[Path]) -> dict[str, Tensor]:
    """The tensors in pickled weight files.

    Args:
        files: all of a checkpoint, which together hold each tensor once.

    Returns:
        Tensors by name.

    Raises:
        InputError: as `read_pickle`; something else than dense tensors by name; or a tensor in two files.
    """
    state: dict[str, Tensor] = {}
    owners: dict[str, Path] = {}
    for file in files:
        content = read_pickle(file)
        refuse_no_state(file, content)
        for name in content:
            refuse_second(name, file, owners)
        state |= content
    return state


def refuse_no_state(source: Path, content: Mapping[Any, Any]) -> None:
    """Refuse anything but dense tensors by name.

    Args:
        source: the file that it comes from.
        content: what should be a state dict.

    Raises:
        InputError: names the first thing that is none.
    """
    if not content:
        raise InputError(f"{source} holds no parameters; expected those of a model")
    for name, value in content.items():
        is_dense = isinstance(value, Tensor) and value.layout == torch.strided and value.device.type == "cpu"
        if not isinstance(name, str) or not is_dense or value.is_quantized:
            kind = f"{value.layout} tensor" if isinstance(value, Tensor) else type(value).__name__
            raise InputError(f"{source} holds a {kind} under {str(name)[:100]!r}; expected dense tensors by name")
