"""One call of a linear map on data, as watchers are shown it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from fusionlab.statistics.layout import Layout
from fusionlab.statistics.linear_maps import Weight, rows_written


@dataclass(frozen=True)
class Seen:
    """One call of a linear map: the rows that it read and wrote.

    Attributes:
        weight: its weight.
        source: the name of the input, shared with other maps that read the same tensor.
        is_first: whether this map is the one that the input is named after, so that it is counted once.
        call: which of the calls on data it is, from 0.
        leading: the dimensions of what it read, without features.
        layout: of those.
        valid: which rows count, flattened; None for all.
    """

    weight: Weight
    source: str
    is_first: bool
    call: int
    leading: torch.Size
    layout: Layout
    valid: Tensor | None
    _module: nn.Module
    _read: Tensor
    _written: Tensor

    @cached_property
    def inputs(self) -> Tensor:
        """All rows that it read, those that do not count among them: shape ``(rows, features)``."""
        return self._read.flatten(0, -2)

    @cached_property
    def outputs(self) -> Tensor:
        """All rows that it wrote, in the same order: shape ``(rows, features)``."""
        return self.as_written(self._written)

    def as_written(self, tensor: Tensor) -> Tensor:
        """The rows of a tensor of the shape of what it wrote: shape ``(rows, features)``."""
        return rows_written(self._module, tensor).flatten(0, -2)
