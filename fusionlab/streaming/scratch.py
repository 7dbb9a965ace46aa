"""Numbers of a matching that lie on the disk and are mapped: the system keeps as much of them in memory as it likes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from fusionlab.matching.blocks import Block
from fusionlab.types import State

# Bytes that are written at once where a file's place is taken by writing.
_ZEROS = 2**20


class Scratch:
    """A folder of mapped tensors, and what a matching makes of them (`fusionlab.matching.keeping.Keeper`).

    States are changed in place: a changed parameter is computed when it is asked for, from what lies on the disk, until
    the state is settled.

    Args:
        folder: to make; it is removed again at the end of a ``with`` statement.
    """

    holds_models = False

    def __init__(self, folder: Path) -> None:
        self.folder, self._count = folder, 0

    def __enter__(self) -> Scratch:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def kept(self, tensor: Tensor) -> Tensor:
        """A copy of a tensor on the disk.

        Args:
            tensor: of any type.

        Raises:
            OSError: the disk is full.
        """
        if not tensor.numel():
            return tensor.clone()
        path, self._count = self.folder / str(self._count), self._count + 1
        with path.open("xb") as file:
            _take_place(file, tensor.numel() * tensor.itemsize)
        mapped = torch.from_file(str(path), shared=True, size=tensor.numel(), dtype=tensor.dtype).view(tensor.shape)
        return mapped.copy_(tensor)

    def changed(self, state: State, names: Collection[str], make: Callable[[str], Tensor]) -> State:
        """A state whose changed parameters are computed each time that they are asked for."""
        return _Changed(state, names, make)

    def settled(self, state: State) -> State:
        """The state on the disk; what it was made of is overwritten."""
        names, kept = dict[str, None](), state
        while isinstance(kept, _Changed):
            names |= kept.names
            kept = kept.state
        for name in names:
            kept[name].copy_(state[name])
        return kept

    def table(self) -> MutableMapping[str, Tensor]:
        """An empty table on the disk."""
        return _Table(self)


class _Changed(Mapping[str, Tensor]):
    """A state some of whose parameters are made of another one's."""

    def __init__(self, state: State, names: Collection[str], make: Callable[[str], Tensor]) -> None:
        self.state, self.names, self.make = state, dict.fromkeys(names), make

    def __getitem__(self, name: str) -> Tensor:
        return self.make(name) if name in self.names else self.state[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.state)

    def __len__(self) -> int:
        return len(self.state)


class _Table(MutableMapping[str, Tensor]):
    """Tensors by name, on the disk; one in the place of another of its shape takes no further space."""

    def __init__(self, scratch: Scratch) -> None:
        self.scratch, self.held = scratch, dict[str, Tensor]()

    def __getitem__(self, name: str) -> Tensor:
        return self.held[name]

    def __setitem__(self, name: str, tensor: Tensor) -> None:
        old = self.held.get(name)
        if old is not None and (old.shape, old.dtype) == (tensor.shape, tensor.dtype):
            old.copy_(tensor)
        else:
            self.held[name] = self.scratch.kept(tensor)

    def __delitem__(self, name: str) -> None:
        del self.held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)


def _take_place(file: BinaryIO, size: int) -> None:
    """Take the bytes of an empty file on the disk now.

    Of a mapped file that has no place on the disk nobody learns until it is written to, which ends a process.

    Raises:
        OSError: the disk is full.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
        return
    zeros = bytes(_ZEROS)  # macOS has no such call
    for start in range(0, size, _ZEROS):
        file.write(zeros[: size - start])


def table_bytes(found: Iterable[Block]) -> int:
    """The bytes that tables of means take: of every space one in float64, and one of what each pair is worth.

    Args:
        found: all blocks.
    """
    count = 0
    for block in found:
        outer = 1 if block.permutation is None else block.permutation.group.size**2
        count += 0 if block.permutation is None else block.permutation.count * outer
        count += sum(
            (space.count if block.permutation is None else outer) * space.group.size**2 for space in block.inner
        )
    return 16 * count
