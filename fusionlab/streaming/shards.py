"""Safetensors files of which all but the numbers is written first, so that numbers may come in any order."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from fusionlab.checkpoints.files import SAFETENSORS, SAFETENSORS_INDEX
from fusionlab.errors import InputError
from fusionlab.streaming.stored import TYPES, StoredModel, TensorSpec, bytes_of

_NAMES = {dtype: name for name, dtype in TYPES.items()}
_UNITS = {"": 1, "B": 1, **{f"{p}B": 1000**i for i, p in enumerate("KMGT", 1)}}
_UNITS |= {f"{p}IB": 1024**i for i, p in enumerate("KMGT", 1)}
# Bytes of a file where no model says otherwise.
ONE_FILE = 50 * 10**9


def largest_file(model: StoredModel | None) -> int:
    """The bytes of a model's largest file where it has several; 0 where it has one, or there is no model."""
    files = {} if model is None else {tensor.file: tensor.file.stat().st_size for tensor in model.tensors.values()}
    return max(files.values()) if len(files) > 1 else 0


def shard_bytes(text: str) -> int:
    """The bytes of a size, such as ``5GB``, ``500 MB`` or ``4GiB``.

    Raises:
        InputError: it is none.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if match is None or match[2].upper() not in _UNITS or float(match[1]) <= 0:
        raise InputError(f"max_shard_size is {text!r}; expected a size such as 5GB, 500MB or 4GiB")
    return max(1, int(float(match[1]) * _UNITS[match[2].upper()]))


def like(model: StoredModel, tensors: Mapping[str, TensorSpec], most: int | None) -> dict[str, list[str]]:
    """The names of tensors by the file that they are written to.

    Args:
        model: whose files are followed.
        tensors: what is written, in its order.
        most: bytes of tensors in a file, where it is not to be as in `model`; a larger tensor has a file of its own.
    """
    files: dict[str, list[str]] = {}
    if most is None:
        for name in tensors:
            files.setdefault(model.tensors[name].file.name, []).append(name)
        return files
    shards: list[list[str]] = []
    size = 0
    for name, tensor in tensors.items():
        if not shards or size + tensor.size > most:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += tensor.size
    if len(shards) == 1:
        return {SAFETENSORS: shards[0]}
    return {f"model-{i:05}-of-{len(shards):05}.safetensors": names for i, names in enumerate(shards, 1)}


@dataclass(frozen=True)
class Writer:
    """Files that are being written.

    Attributes:
        places: of each tensor the file's handle, and its first byte in it.
        tensors: what is written.
        kept: tensors that lie in complete files; they are not written again.
    """

    places: Mapping[str, tuple[int, int]]
    tensors: Mapping[str, TensorSpec]
    kept: frozenset[str] = frozenset()

    def write(self, name: str, start: int, numbers: Tensor) -> None:
        """Write a stretch of a tensor, from any thread.

        Args:
            name: of the tensor.
            start: the first number's place in the flattened tensor.
            numbers: in the type that was planned, flattened.
        """
        if name in self.kept:
            return
        handle, offset = self.places[name]
        if numbers.numel():
            _write_all(handle, bytes_of(numbers.contiguous()), offset + start * numbers.dtype.itemsize)

    def sizes(self, name: str, count: int) -> dict[str, int]:
        """The bytes that numbers of a tensor take in the files, by the tensor's name.

        Args:
            name: of the tensor.
            count: of the numbers.
        """
        return {name: count * self.tensors[name].dtype.itemsize}


@contextmanager
def written(
    folder: Path,
    files: Mapping[str, Sequence[str]],
    tensors: Mapping[str, TensorSpec],
    finished: Container[str] = (),
) -> Iterator[Writer]:
    """Make the weight files of a checkpoint, with an index where there are several.

    Args:
        folder: to write into.
        files: names of tensors by file.
        tensors: what is written.
        finished: files that are complete already.

    Yields:
        What writes the numbers; every one must be written.

    Raises:
        OSError: the disk is full, or a file may not be that large.
    """
    places: dict[str, tuple[int, int]] = {}
    with ExitStack() as stack:
        for file, names in files.items():
            if file in finished:
                continue
            # Wide types first, so that every tensor begins at a multiple of its numbers' size, as readers like it.
            ordered = sorted(names, key=lambda name: -tensors[name].dtype.itemsize)
            header, offsets = _header({name: tensors[name] for name in ordered})
            handle = os.open(folder / file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
            stack.callback(os.close, handle)
            _write_all(handle, memoryview(header), 0)
            places |= {name: (handle, len(header) + offset) for name, offset in offsets.items()}
        if len(files) > 1 or SAFETENSORS not in files:
            _write_index(folder, files, tensors)
        yield Writer(places, tensors, frozenset(name for name in tensors if name not in places))


def _header(tensors: Mapping[str, TensorSpec]) -> tuple[bytes, dict[str, int]]:
    """The head of a file, and where each tensor begins behind it."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offsets, end = {}, 0
    for name, tensor in tensors.items():
        offsets[name], begin, end = end, end, end + tensor.size
        entries[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, offsets


def _write_all(handle: int, content: memoryview, at: int) -> None:
    while content:
        done = os.pwrite(handle, content, at)
        content, at = content[done:], at + done


def _write_index(folder: Path, files: Mapping[str, Sequence[str]], tensors: Mapping[str, TensorSpec]) -> None:
    index = {
        "metadata": {
            "total_parameters": sum(tensor.count for tensor in tensors.values()),
            "total_size": sum(tensor.size for tensor in tensors.values()),
        },
        "weight_map": dict(sorted((name, file) for file, names in files.items() for name in names)),
    }
    (folder / SAFETENSORS_INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
