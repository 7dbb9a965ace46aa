"""Estimates: the median of what is finished, else one batch."""

from pathlib import Path
from statistics import median
from typing import Any

from torch import nn

from fusionlab.errors import InputError
from fusionlab.grid.design import Cell, EndModel
from fusionlab.grid.estimate import estimate, probe
from tests.commands.small import bert
from tests.grid.toys import Words, grid, runner, vits


def test_estimate(tmp_path: Path) -> None:
    """What is finished takes no time, the rest the median of its kind; before there is any, one batch says it."""
    given = runner(grid(vits(tmp_path)), tmp_path / "out")

    def fresh(model: EndModel) -> Any:
        raise AssertionError("nothing is to be trained")

    lines = estimate(given, given.state(), fresh)
    assert sum(line.cells for line in lines) == sum(line.missing for line in lines) == len(given.grid.cells())
    assert all(line.seconds is not None and line.seconds > 0 for line in lines)
    done = list(given.run())
    half = [(d.cell, d if d.cell.models != ("b", "c") else None) for d in done]
    for line in estimate(given, half, fresh):
        alike = [d.seconds for cell, d in half if d and (cell.method, cell.matching) == (line.method, line.matching)]
        missing = 0 if line.method == "end model" else 1
        assert (line.missing, line.seconds) == (missing, missing * median(alike))
    assert all(line.seconds == 0 for line in estimate(given, [(d.cell, d) for d in done], fresh))


def test_estimate_of_training(tmp_path: Path) -> None:
    """Twice the passes take about twice as long; without model or data nothing is claimed."""

    class Task(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = bert(0)

    def fresh(model: EndModel) -> Any:
        if (model.fit or {}).get("model") == "unreachable":
            raise InputError("the hub cannot be reached")
        return Task()

    ends = {name: EndModel(Words(name), fit={"trainer": {"max_epochs": 1000}}) for name in "ab"}
    given = runner(grid(ends), tmp_path)
    training = probe(given, Cell(("a",), "end model", "-", 0), fresh)
    merging = probe(given, Cell(("a", "b"), "simple", "none", 0), fresh)
    assert training is not None
    assert merging is not None
    assert training > 50 * merging
    away = runner(grid({name: EndModel(Words(name), fit={"model": "unreachable"}) for name in "ab"}), tmp_path)
    assert probe(away, Cell(("a",), "end model", "-", 0), fresh) is None
