"""Checkpoint folders of safetensors as they lie on the disk: where each tensor is, and pieces of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from fusionlab.checkpoints.files import is_adapter, read_config, weight_files
from fusionlab.checkpoints.fp8 import FP8, Scale, is_of_activations, is_read, scales_of, type_of, without_scheme
from fusionlab.checkpoints.weights import read_headers
from fusionlab.dtypes import main_of
from fusionlab.errors import InputError

# Names of types in the header of a file.
TYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
    "F8_E4M3": FP8,
}  # fmt: skip


@dataclass(frozen=True)
class TensorSpec:
    """The type and shape of a tensor.

    Attributes:
        dtype: of its numbers.
        shape: of it.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """The count of its numbers."""
        return torch.Size(self.shape).numel()

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.count * self.dtype.itemsize


# Numbers of a file: of a tensor, in the type that the file has them in, from a place on, so many.
Raw = Callable[["StoredTensor", torch.dtype, int, int], Tensor]


@dataclass(frozen=True)
class StoredTensor(TensorSpec):
    """One tensor in a file.

    Attributes:
        file: that holds it.
        offset: its first byte in the file.
    """

    file: Path
    offset: int

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that it is read from."""
        return (self.file,)

    @property
    def is_scaled(self) -> bool:
        """True if it is stored in 8 bits, and read by dequantising."""
        return False

    def numbers(self, raw: Raw, start: int, count: int) -> Tensor:
        """A stretch of its numbers, flattened.

        Args:
            raw: reads the files.
            start: the first number's place.
            count: how many numbers.
        """
        return raw(self, self.dtype, start, count)


@dataclass(frozen=True)
class ScaledTensor(StoredTensor):
    """One tensor of 8 bits in a file, which is read in another type.

    Attributes:
        scale: of its blocks.
        scales: the tensor that holds them.
    """

    scale: Scale
    scales: StoredTensor

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that it is read from."""
        return (self.file, self.scales.file)

    @property
    def is_scaled(self) -> bool:
        """True."""
        return True

    def numbers(self, raw: Raw, start: int, count: int) -> Tensor:
        """A stretch of its numbers, dequantised and flattened."""
        scales = raw(self.scales, self.scales.dtype, 0, self.scales.count)
        return self.scale.of(raw(self, FP8, start, count), start, self.shape[1], scales, self.dtype)


@dataclass(frozen=True)
class StoredModel:
    """A checkpoint folder of which nothing but the description has been read.

    Attributes:
        source: the path or hub id, as it was given.
        location: the folder.
        format: the library that writes such folders.
        config: its ``config.json``.
        tensors: by name, in the order in which they lie in its files.
        base: the path or hub id of the base model, of an adapter; then all but `source` is the base model's.
        beside: files beside those of `tensors` that say what is read, such as an adapter's.
        adapter: the folder of an adapter, whose tokenizer and other side files come before those of its base model.
    """

    source: str
    location: Path
    format: Literal["transformers", "timm"]
    config: Mapping[str, Any] = field(repr=False)
    tensors: Mapping[str, StoredTensor] = field(repr=False)
    base: str | None = None
    beside: tuple[Path, ...] = ()
    adapter: Path | None = None

    @property
    def dtypes(self) -> dict[str, tuple[torch.dtype, int]]:
        """The type of each of its tensors, with the numbers counted that have it."""
        return {name: (tensor.dtype, tensor.count) for name, tensor in self.tensors.items()}

    @property
    def main_dtype(self) -> torch.dtype:
        """The floating type that most of its numbers have."""
        return main_of(self.dtypes.values())

    @property
    def size(self) -> int:
        """The bytes of its tensors, as they are read."""
        return sum(tensor.size for tensor in self.tensors.values())

    @property
    def is_scaled(self) -> bool:
        """True if some of its weights are stored in 8 bits, and read by dequantising."""
        return any(tensor.is_scaled for tensor in self.tensors.values())

    @contextmanager
    def opened(self) -> Iterator[Reader]:
        """Hold its files open.

        Yields:
            What reads them, from any thread.
        """
        with ExitStack() as stack:
            handles = {}
            for file in dict.fromkeys(file for tensor in self.tensors.values() for file in tensor.files):
                handles[file] = os.open(file, os.O_RDONLY | getattr(os, "O_BINARY", 0))
                stack.callback(os.close, handles[file])
            yield Reader(self, handles)


@dataclass(frozen=True)
class Reader:
    """A model whose files are open.

    Attributes:
        model: whose.
        handles: of its files.
    """

    model: StoredModel
    handles: Mapping[Path, int]

    def read(self, name: str, start: int, count: int) -> Tensor:
        """A stretch of a tensor as it is stored, flattened; of one that is stored in another way as it is read.

        Args:
            name: of the tensor.
            start: its first number's place.
            count: how many numbers.

        Raises:
            InputError: the file has become shorter meanwhile.
        """
        return self.model.tensors[name].numbers(partial(self.raw, name), start, count)

    def raw(self, name: str, stored: StoredTensor, dtype: torch.dtype, start: int, count: int) -> Tensor:
        """Numbers of a file in the type that it has them in.

        Args:
            name: of the tensor that is read, for messages.
            stored: what lies in the file.
            dtype: that the file has it in.
            start: the first number's place.
            count: how many numbers.

        Raises:
            InputError: the file has become shorter meanwhile.
        """
        read = torch.empty(count, dtype=dtype)
        if not count:
            return read
        left = bytes_of(read)
        at = stored.offset + start * dtype.itemsize
        while left:
            done = os.preadv(self.handles[stored.file], [left], at)
            if not done:
                raise InputError(f"{stored.file} ends inside the parameter {name}; expected a complete file")
            left, at = left[done:], at + done
        return read


def bytes_of(numbers: Tensor) -> memoryview:
    """The memory of a tensor, of at least one number, that lies in one piece."""
    return memoryview(numbers.view(torch.uint8).numpy())  # type: ignore[arg-type]


def open_folder(source: str, location: Path) -> StoredModel | None:
    """A checkpoint folder as it lies on the disk.

    Args:
        source: the path or hub id, as it was given.
        location: the folder.

    Returns:
        The model; None where it is stored in another way, or holds tensors of types that nothing is merged in.

    Raises:
        InputError: a folder that is no checkpoint, or whose files are missing or damaged.
    """
    if not location.is_dir() or is_adapter(location):
        return None
    config = read_config(location)
    files = weight_files(location)
    if files[0].suffix != ".safetensors":
        return None
    read_headers(files)  # finds damage, and a tensor that two files hold
    tensors: dict[str, StoredTensor] = {}
    for file in files:
        found = _tensors(file)
        if found is None:
            return None
        tensors |= found
    if any(tensor.dtype == FP8 for tensor in tensors.values()):
        if not is_read(config):
            return None
        tensors, config = _scaled(tensors, config, location), without_scheme(config)
    return StoredModel(source, location, "timm" if "architecture" in config else "transformers", config, tensors)


def _scaled(tensors: Mapping[str, StoredTensor], config: Mapping[str, Any], source: Path) -> dict[str, StoredTensor]:
    """Tensors of 8 bits in the type that they are read in; what belongs to them is left out."""
    found = scales_of({name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}, config, source)
    used, dtype = {scale.name for scale in found.values()}, type_of(config)
    read: dict[str, StoredTensor] = {}
    for name, one in tensors.items():
        if name in found:
            scale = found[name]
            read[name] = ScaledTensor(dtype, one.shape, one.file, one.offset, scale, tensors[scale.name])
        elif name not in used and not is_of_activations(name):
            read[name] = one
    return read


def _tensors(file: Path) -> dict[str, StoredTensor] | None:
    """The tensors of a sound file, in the order of their bytes; None where one is of another type."""
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        header = json.loads(opened.read(length))
    header.pop("__metadata__", None)
    if any(entry["dtype"] not in TYPES for entry in header.values()):
        return None
    return {
        name: StoredTensor(TYPES[entry["dtype"]], tuple(entry["shape"]), file, 8 + length + entry["data_offsets"][0])
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"])
    }
