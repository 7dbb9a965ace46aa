"""Gram matrices of what linear maps read: all that a least-squares problem needs to know about data.

Jin et al., "Dataless Knowledge Fusion by Merging Weights of Language Models" (2023), whose RegMean they feed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from fusionlab.statistics.accumulator import Common, Watcher, accumulator, with_settings
from fusionlab.statistics.linear_maps import LinearMaps
from fusionlab.statistics.seen import Seen
from fusionlab.statistics.statistics import Grams

# A Gram matrix is symmetric: of blocks this wide only those on and below the diagonal are computed.
BLOCK = 768


@accumulator
class GramAccumulator(Watcher):
    """Sums ``x x^T`` over the rows that count, once for each distinct input, with a column of ones for the bias.

    Products and their sums are made in float32, in float64 for a model in float64; the column of ones, whose entries
    grow most, is summed in float64.
    """

    kind: ClassVar[str] = Grams.kind

    def __init__(self) -> None:
        self._maps = LinearMaps({}, {})
        self._matrices: dict[str, Tensor] = {}
        self._ones: dict[str, Tensor] = {}
        self._rows: dict[str, Tensor] = {}

    def start(self, maps: LinearMaps) -> None:
        self._maps = maps
        for weight in maps.sources():
            parameter: Tensor = weight.modules[0].weight  # type: ignore[assignment]
            dtype = torch.promote_types(parameter.dtype, torch.float32)
            size, device = weight.features, parameter.device
            # Room for the column of ones from the start: no matrix is held twice.
            self._matrices[weight.name] = torch.zeros(size + 1, size + 1, dtype=dtype, device=device)
            exact = torch.float32 if device.type == "mps" else torch.float64
            self._ones[weight.name] = torch.zeros(size, dtype=exact, device=device)
            self._rows[weight.name] = torch.zeros((), dtype=torch.int64, device=device)

    def see(self, seen: Seen) -> None:
        if not seen.is_first:
            return
        matrix, ones = self._matrices[seen.source], self._ones[seen.source]
        rows = seen.inputs if seen.valid is None else seen.inputs[seen.valid]
        rows = rows.to(matrix.dtype)
        add_product(matrix[:-1, :-1], rows)
        ones += rows.sum(0, dtype=ones.dtype)
        self._rows[seen.source] += len(rows)

    def sums(self) -> dict[str, Tensor]:
        parts = {"matrices": self._matrices, "ones": self._ones, "rows": self._rows}
        return {f"{part}/{name}": tensor for part, found in parts.items() for name, tensor in found.items()}

    def finish(self, totals: Mapping[str, Tensor], common: Common) -> Grams:
        rows = {name: int(totals[f"rows/{name}"]) for name in self._rows}
        matrices = {name: _completed(totals[f"matrices/{name}"], totals[f"ones/{name}"], rows[name]) for name in rows}
        told = with_settings(common, **self._maps.omissions())
        return Grams(**told, matrices=matrices, rows=rows, maps=self._maps.described())


def add_product(product: Tensor, rows: Tensor) -> None:
    """Add ``rows^T rows`` to the lower triangle of `product`, in blocks; what is above it is left unfinished.

    Args:
        product: shape ``(features, features)``; changed in place.
        rows: shape ``(rows, features)``.
    """
    for start in range(0, len(product), BLOCK):
        block = rows[:, start : start + BLOCK]
        product[start : start + BLOCK, : start + BLOCK].addmm_(block.T, rows[:, : start + BLOCK])


def _completed(matrix: Tensor, ones: Tensor, rows: int) -> Tensor:
    """The symmetric matrix on the CPU, from its lower triangle and its column of ones; changes `matrix`."""
    matrix = matrix.cpu()
    product = matrix[:-1, :-1].tril_()
    product += product.tril(-1).T
    matrix[-1, :-1] = matrix[:-1, -1] = ones
    matrix[-1, -1] = rows
    return matrix
