"""The test sets of cells: domains, names, how predictions are decided."""

from pathlib import Path

from fusionlab.data import Digits
from fusionlab.grid.data_sets import TestData
from fusionlab.grid.design import Cell, EndModel
from tests.grid.toys import Words, grid, vits


def test_domains(tmp_path: Path) -> None:
    """Own test sets are in domain; others and outside ones are out of domain, for an end model."""
    data = TestData(grid(vits(tmp_path), out_of_domain=(Digits(classes=[9]),)))
    found = {cell: [s.domain for s in data.of(cell).sets] for cell in data.grid.cells()}
    assert found[Cell(("a",), "end model", "-", 0)] == ["in", "out", "out", "out"]
    assert found[Cell(("a", "c"), "simple", "paper", 0)] == ["in", "in", "out"]
    assert [s.owner for s in data.of(Cell(("a", "c"), "simple", "none", 0)).sets] == [0, 1, None]


def test_one_data_set_is_measured_once_and_one_name_means_one_data_set() -> None:
    """Two end models of the same data have one test set; other data of the same name get a number."""
    ends = {name: EndModel(Words("same"), ckpt=name) for name in "ab"} | {
        "c": EndModel(Words("same", seed=7), ckpt="c")
    }
    data = TestData(grid(ends))
    assert [s.name for s in data.of(Cell(("a", "b"), "simple", "none", 0)).sets] == ["same"]
    assert [s.name for s in data.of(Cell(("b", "c"), "simple", "none", 0)).sets] == ["same", "same 2"]


def test_published_decisions() -> None:
    """A label needs a logit of 0.5, a stray I- tag begins an entity; corrected ones are the tasks' own."""
    for task, options in (("multilabel", {"decision": "logit"}), ("tokens", {"mode": "conlleval"}), (None, {})):
        ends = {name: EndModel(Words(name, task=task), ckpt=name) for name in "ab"}  # type: ignore[arg-type]
        for protocol, wanted in (("published", options), ("corrected", {})):
            data = TestData(grid(ends, protocol=protocol))
            assert [s.options for s in data.of(Cell(("a", "b"), "simple", "none", 0)).sets] == [wanted, wanted]
