"""Finished cells on disk: read back as they were, made anew when they failed or settings changed."""

from pathlib import Path

import pytest

from fusionlab.errors import InputError
from fusionlab.evaluation.distances import Distance
from fusionlab.evaluation.results import Curve, Row
from fusionlab.grid.cells import CellStore, Finished
from fusionlab.grid.design import Cell

CELL = Cell(("a", "b/c"), "simple", "paper, no rescale", 3)
ROW = Row(("a", "b/c"), "simple", "paper, no rescale", "digits", "in", "accuracy", 0.25, 1.5)
CURVE = Curve("b/c", "a", "none", "digits", "in", (0.0, 0.5, 1.0), (1.0, 2.0, 1.0), (0.9, 0.1, 0.9))
DISTANCE = Distance("b/c", "a", "paper", "ffn", None, 2.0, 1.0)


def test_round_trip(tmp_path: Path) -> None:
    """Every field of rows and curves survives."""
    store = CellStore(tmp_path / "cells")
    finished = Finished(CELL, (ROW,), (CURVE,), (DISTANCE,), 2.5, None, {"words": "gone"}, "grown", ("Kept.", "Left."))
    assert store.read(CELL, "f") is None
    store.write(finished, "f")
    assert store.read(CELL, "f") == finished


def test_other_settings_and_failures_are_made_again(tmp_path: Path) -> None:
    """Neither counts as finished."""
    store = CellStore(tmp_path)
    store.write(Finished(CELL, (ROW,)), "f")
    assert store.read(CELL, "another") is None
    store.write(Finished(CELL, (), error="ValueError: no"), "f")
    assert store.read(CELL, "f") is None


def test_a_file_that_is_no_cell_is_named(tmp_path: Path) -> None:
    """With the path and what was expected."""
    store = CellStore(tmp_path)
    store.write(Finished(CELL, (ROW,)), "f")
    (path,) = tmp_path.iterdir()
    path.write_text("{")
    with pytest.raises(InputError, match=r"is no cell of a grid"):
        store.read(CELL, "f")
