"""The auction on a device against fusionlab's assignment."""

import importlib
from pathlib import Path

import pytest
import torch

from fusionlab.matching.assignment import assignment


@pytest.mark.parametrize("size", [1, 2, 17, 60])
def test_it_reaches_the_best_sum(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the last increment times the number of rows, which is what the algorithm promises."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    auction = importlib.import_module("auction").auction
    generator = torch.Generator().manual_seed(size)
    for _ in range(3):
        worth = torch.randn(size, size, generator=generator, dtype=torch.float64)
        column, _ = auction(worth, 1e-6)
        assert sorted(column.tolist()) == list(range(size))
        rows = torch.arange(size)
        best = worth[rows, assignment(worth)].sum()
        assert worth[rows, column].sum() >= best - 1e-6 * size * (worth.amax() - worth.amin() + 1)
