"""Running a grid: numbers as worked out by hand, seeds in paths, lines and distances."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning.pytorch import seed_everything
from torch import nn

from fusionlab import checkpoints
from fusionlab.data import Digits
from fusionlab.errors import InputError
from fusionlab.grid.cells import Finished
from fusionlab.grid.design import Cell, EndModel
from fusionlab.grid.details import geometry
from fusionlab.grid.runner import GridRunner
from tests.commands.small import bert, digit_scores, vit
from tests.grid.toys import BOTH, CPU, Words, grid, no_training, runner, value, vits


def test_cells_hold_what_the_models_do(tmp_path: Path) -> None:
    """End models and the plain average score as they do by themselves, on all test digits of their classes."""
    ends = vits(tmp_path)
    finished = list(runner(grid(ends, test_samples=None), tmp_path / "out").run())
    names = ["digits", "digits 2", "digits 3"]
    assert value(finished, Cell(("a",), "end model", "-", 0), names[0]) == pytest.approx(
        digit_scores(vit(0), (0, 1))["accuracy"]
    )
    assert value(finished, Cell(("a",), "end model", "-", 0), names[1]) == pytest.approx(
        digit_scores(vit(0), (3, 4))["accuracy"]
    )
    mean = vit(0)
    with torch.no_grad():
        for parameter, other in zip(mean.parameters(), vit(10).parameters(), strict=True):
            parameter.lerp_(other, 0.5)
    merged = Cell(("a", "b"), "simple", "none", 0)
    for name, classes in zip(names[:2], ((0, 1), (3, 4)), strict=True):
        assert value(finished, merged, name, "loss") == pytest.approx(digit_scores(mean, classes)["loss"], rel=1e-5)


def test_seeds_in_paths_and_hub_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`{seed}` stands for the seed in both; other braces stay as they are."""
    read: list[str] = []

    def load(path: str) -> nn.Module:
        read.append(path)
        return bert(0)

    monkeypatch.setattr(checkpoints, "load", load)
    ends = {"a": EndModel(Words("a"), ckpt="team/model-{seed}"), "b": EndModel(Words("b"), ckpt="in/{x}/{seed}/b")}
    finished = list(runner(grid(ends, seeds=(3,)), tmp_path).run())
    assert set(read) == {"team/model-3", "in/{x}/3/b"}
    ends_alone = [row for done in finished if done.cell.method == "end model" for row in done.rows]
    assert {row.seconds for row in ends_alone} == {None}, "a model that is given takes no time to train"


def test_end_models_of_two_sizes_are_grown_to_one_and_a_note_says_so(tmp_path: Path) -> None:
    ends = vits(tmp_path)
    checkpoints.save(vit(1, hidden_size=24), tmp_path / "wide")
    ends = {"a": ends["a"], "wide": EndModel(ends["b"].data, str(tmp_path / "wide"))}
    finished = list(runner(grid(ends), tmp_path / "out").run())
    assert [done.error for done in finished] == [None] * len(finished)
    notes = {done.cell.matching: done.note for done in finished if done.cell.is_merge}
    assert set(notes) == {"none", "paper"}
    assert all("so that a (residual 16 to 24" in note for note in notes.values())


def test_a_cell_keeps_what_its_method_told(tmp_path: Path) -> None:
    """By the names of the grid, and read again with the cell; methods that tell nothing leave it empty."""
    given = grid(vits(tmp_path), groups=(("a", "b"),), methods={"soup": {}, "simple": {}}, matchings={})
    made = {done.cell.method: done.told for done in runner(given, tmp_path / "out").run()}
    assert made["simple"] == made["end model"] == ()
    (sentence,) = made["soup"]
    assert sentence.startswith("Kept a") or sentence.startswith("Kept b")
    assert {done.cell.method: done.told for done in runner(given, tmp_path / "out").run()} == made


def test_lines_and_distances(tmp_path: Path) -> None:
    """Lines once for each matching, of the first seed on the pair's own sets; distances with each matching, shorter."""
    ends = vits(tmp_path, seeds=(0, 1))
    given = grid(ends, seeds=(0, 1), groups=(("a", "b"),), points=3, out_of_domain=(Digits(classes=[9]),), methods=BOTH)
    finished = {done.cell: done for done in runner(given, tmp_path / "out").run()}
    drawn = [cell for cell, done in finished.items() if done.curves]
    assert drawn == [Cell(("a", "b"), "simple", matching, 0) for matching in ("none", "paper")]
    assert {curve.domain for cell in drawn for curve in finished[cell].curves} == {"in"}
    far = {cell: done.distances for cell, done in finished.items() if done.distances}
    assert list(far) == [Cell(("a", "b"), method, "paper", seed) for seed in (0, 1) for method in BOTH]
    for distances in far.values():
        assert all(d.after <= d.before * (1 + 1e-12) for d in distances)
        assert any(d.after < 0.99 * d.before for d in distances)
    unmatched, paper = geometry(list(finished.values()))
    assert unmatched.distance is not None
    assert paper.distance is not None
    assert unmatched.distance.count == paper.distance.count == 2, "each seed once, whatever the methods"


def test_more_than_one_device_is_refused(tmp_path: Path) -> None:
    """Every process would write every cell."""
    given = grid({name: EndModel(Words(name), ckpt=name) for name in "ab"})
    with pytest.raises(InputError, match=r"devices is '2' \(2 here\), but one process writes a grid; expected 1"):
        GridRunner(given, tmp_path, no_training, {"accelerator": "cpu", "devices": "2"})


@pytest.mark.parametrize("precision", ["bf16-true", "16-true", "transformer-engine", "transformer-engine-float16"])
def test_precision_never_reaches_the_merge(tmp_path: Path, precision: str) -> None:
    """A Trainer that rounds the models in place would let later cells merge rounded ones."""
    given = grid({name: EndModel(Words(name), ckpt=name) for name in "ab"})
    with pytest.raises(InputError, match=f"precision is '{precision}', which rounds the model"):
        GridRunner(given, tmp_path, no_training, {**CPU, "precision": precision})


def test_a_cell_has_its_own_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is drawn in a cell follows from its seed, not from what was drawn before it."""
    drawn: dict[Cell, list[float]] = {}

    def measure(self: GridRunner, cell: Cell) -> Finished:
        drawn[cell] = [float(torch.rand(())), float(np.random.rand()), random.random()]
        return Finished(cell, ())

    monkeypatch.setattr(GridRunner, "_measure", measure)
    given = grid(vits(tmp_path, seeds=(3, 4)), seeds=(3, 4))
    list(runner(given, tmp_path / "out").run())
    for seed in (3, 4):
        seed_everything(seed, verbose=False)
        wanted = [float(torch.rand(())), float(np.random.rand()), random.random()]
        assert {tuple(numbers) for cell, numbers in drawn.items() if cell.seed == seed} == {tuple(wanted)}
