"""Tensors of a base model that a LoRA adapter changes: rows are changed as they are read, so that none is held."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import torch
from torch import Tensor

from fusionlab.checkpoints.changes import Change, Stack
from fusionlab.streaming.stored import Raw, StoredTensor

# Numbers that are changed at once, about.
_BLOCK = 2**20
# Threads that read stretches of one weight wait for its lengths.
_GAINS = Lock()


@dataclass(frozen=True)
class ReplacedTensor(StoredTensor):
    """One tensor of a base model in whose place an adapter has another one.

    Attributes:
        saved: the other one, of the same shape.
    """

    saved: Tensor

    @property
    def files(self) -> tuple[Path, ...]:
        """None: it lies in the adapter's file, which is mapped."""
        return ()

    def numbers(self, raw: Raw, start: int, count: int) -> Tensor:
        """A stretch of the other tensor in the base model's type, flattened."""
        return self.saved.flatten()[start : start + count].to(self.dtype)


@dataclass(frozen=True)
class ShiftedTensor(StoredTensor):
    """One bias of a base model to which an adapter adds.

    Attributes:
        before: the bias without.
        added: what is added, of the same shape.
    """

    before: StoredTensor
    added: Tensor

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that the bias is read from."""
        return self.before.files

    def numbers(self, raw: Raw, start: int, count: int) -> Tensor:
        """A stretch of the sum, flattened."""
        own = self.before.numbers(raw, start, count)
        return (own.double() + self.added[start : start + count]).to(self.dtype)


@dataclass(frozen=True)
class ChangedRows(StoredTensor, ABC):
    """One tensor of a base model whose rows are changed as they are read.

    Attributes:
        before: the tensor without.
    """

    before: StoredTensor

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that the tensor is read from."""
        return self.before.files

    @property
    def is_scaled(self) -> bool:
        """True if the base model stores it in 8 bits."""
        return self.before.is_scaled

    @property
    def row(self) -> int:
        """The count of numbers in a row."""
        return self.count // self.shape[0]

    def numbers(self, raw: Raw, start: int, count: int) -> Tensor:
        """A stretch of the changed tensor, flattened; rows that it begins or ends in are read whole."""
        found = torch.empty(count, dtype=self.dtype)
        row = self.row
        step = max(1, _BLOCK // row)
        last = -(-(start + count) // row)
        for first in range(start // row, last, step):
            end = min(first + step, last)
            block = self.rows(raw, first, end).flatten()
            skipped = max(0, start - first * row)
            at = first * row + skipped - start
            kept = block[skipped : skipped + count - at]
            found[at : at + len(kept)] = kept
        return found

    @abstractmethod
    def rows(self, raw: Raw, first: int, end: int) -> Tensor:
        """Some rows of the changed tensor, as it is stored.

        Args:
            raw: reads the files.
            first: of them.
            end: the one behind them.
        """

    def _before(self, raw: Raw, first: int, end: int) -> Tensor:
        """Some rows without the change, in float32 at least, flattened."""
        before = self.before.numbers(raw, first * self.row, (end - first) * self.row)
        return before.to(torch.promote_types(before.dtype, torch.float32))


@dataclass(frozen=True)
class ChangedStack(ChangedRows):
    """The matrices of experts of a base model, in one tensor, with an adapter's change.

    Attributes:
        stack: the change.
    """

    stack: Stack

    @property
    def row(self) -> int:
        """The count of numbers in a row of an expert's matrix."""
        return self.stack.columns

    def rows(self, raw: Raw, first: int, end: int) -> Tensor:
        """Some rows of all experts' matrices, one after the other."""
        before = self._before(raw, first, end).unflatten(0, (end - first, self.row))
        return self.stack.of_rows(before, first).to(self.before.dtype).to(self.dtype)


@dataclass(frozen=True)
class ChangedTensor(ChangedRows):
    """One weight of a base model with an adapter's change.

    Attributes:
        change: of it; with no magnitude where the weight is turned.
        is_turned: the weight is ``(in, out)``.
        lengths: of the columns of a turned weight, ``(out,)``, where they are learned; the whole weight is read once
            when a stretch of it is asked for first.
    """

    change: Change
    is_turned: bool
    lengths: Tensor | None = None
    _gains: list[Tensor] = field(default_factory=list, init=False, repr=False, compare=False)

    def rows(self, raw: Raw, first: int, end: int) -> Tensor:
        """Some rows of the changed weight."""
        return self._changed(raw, first, end).to(self.before.dtype).to(self.dtype)

    def difference(self, raw: Raw, first: int, end: int) -> Tensor:
        """The difference that the change makes to some rows, flattened and before it is rounded.

        Args:
            raw: reads the files.
            first: of the rows.
            end: the one behind them.
        """
        return self._changed(raw, first, end).flatten() - self._before(raw, first, end)

    def _changed(self, raw: Raw, first: int, end: int) -> Tensor:
        """Some rows with the change and their lengths, in float32 at least."""
        changed = self._wide(raw, first, end)
        return changed if self.lengths is None else changed * self._gains_of(raw, self.lengths).to(changed)

    def _gains_of(self, raw: Raw, lengths: Tensor) -> Tensor:
        """The factors that give each column its length, ``(out,)``."""
        with _GAINS:
            if not self._gains:
                self._gains.append(self._computed(raw, lengths))
        return self._gains[0]

    def _computed(self, raw: Raw, lengths: Tensor) -> Tensor:
        squares = torch.zeros(self.shape[1], dtype=torch.float64)
        step = max(1, _BLOCK // self.shape[1])
        for first in range(0, self.shape[0], step):
            squares += self._wide(raw, first, min(first + step, self.shape[0])).double().square().sum(0)
        return lengths.flatten().double() / squares.sqrt()

    def _wide(self, raw: Raw, first: int, end: int) -> Tensor:
        """Some rows with the change, in float32 at least."""
        before = self._before(raw, first, end).unflatten(0, (end - first, *self.shape[1:]))
        return self.change.of_rows(first, end, self.is_turned).changed(before, self.is_turned)
