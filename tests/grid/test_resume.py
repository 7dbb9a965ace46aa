"""What a second start makes: what is missing, what failed, what has changed; nothing else is made or trained twice."""

from pathlib import Path
from typing import Any

import pytest

from fusionlab import checkpoints
from fusionlab.errors import InputError
from fusionlab.grid.design import Cell, EndModel, Grid
from fusionlab.grid.runner import GridRunner
from fusionlab.grid.summary import summarize
from fusionlab.matching.recipe import recipe
from tests.commands.small import bert, vit
from tests.grid.toys import CPU, Words, berts, grid, no_training, numbers, runner, vits


def test_reading_data_changes_no_fingerprint(tmp_path: Path) -> None:
    """What a data module finds out while it reads is no setting: else nothing would ever be resumed."""
    given = grid(berts(tmp_path))
    before = [given.fingerprint(cell) for cell in given.cells()]
    list(runner(given, tmp_path / "out").run())
    assert [given.fingerprint(cell) for cell in given.cells()] == before
    again = runner(grid(berts(tmp_path / "again")), tmp_path / "out")
    assert len({again.grid.fingerprint(cell) for cell in again.grid.cells()} - set(before)) > 0, "other checkpoints"


def test_resumes_with_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that stops anywhere goes on there: nothing is made twice, and the table is that of a run that did not."""
    given = grid(vits(tmp_path), points=3)
    whole = list(runner(given, tmp_path / "whole").run())
    made: list[Cell] = []
    measure = runner(given, tmp_path / "x")._measure.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr("fusionlab.grid.runner.GridRunner._measure", lambda self, c: made.append(c) or measure(self, c))
    for stop in (2, 8, len(given.cells())):
        started = runner(grid(vits(tmp_path), points=3), tmp_path / "parts")
        parts = [done for done, _ in zip(started.run(), range(stop), strict=False)]
    assert made == given.cells()
    assert numbers(parts) == numbers(whole)
    assert [done.curves for done in parts] == [done.curves for done in whole]
    assert [line.scores for line in summarize(parts)] == [line.scores for line in summarize(whole)]
    assert [line.gains for line in summarize(parts)] == [line.gains for line in summarize(whole)]


def test_passes_in_another_precision_are_made_anew(tmp_path: Path) -> None:
    given = grid(vits(tmp_path))
    list(runner(given, tmp_path / "out").run())
    for precision, is_kept in (("32-true", True), ("bf16-mixed", False)):
        again = GridRunner(given, tmp_path / "out", no_training, {**CPU, "precision": precision})
        assert {done is not None for _, done in again.state()} == {is_kept}


def test_settings_recompute_what_they_touch(tmp_path: Path) -> None:
    """Another hyperparameter is another cell for its method, and for no other."""
    list(runner(grid(vits(tmp_path)), tmp_path / "out").run())
    changed = runner(grid(vits(tmp_path), matchings={"paper": recipe("paper", layers="0")}), tmp_path / "out")
    assert {cell.matching for cell, done in changed.state() if done is None} == {"paper"}
    (tmp_path / "c-0").rename(tmp_path / "old")
    checkpoints.save(vit(99), tmp_path / "c-0")
    replaced = runner(grid(vits(tmp_path)), tmp_path / "out")
    assert {cell.models for cell, done in replaced.state() if done is None} == {("c",), ("a", "c"), ("b", "c")}


def test_a_cell_that_fails_stops_no_other_and_is_tried_again(tmp_path: Path) -> None:
    """A checkpoint that is not there fails its own cells with a sentence; once it is there they are made."""
    ends = vits(tmp_path)
    (tmp_path / "c-0").rename(tmp_path / "away")
    finished = list(runner(grid(ends), tmp_path / "out").run())
    failed = [done for done in finished if done.error is not None]
    assert {done.cell.models for done in failed} == {("c",), ("a", "c"), ("b", "c")}
    assert all("end model c, seed 0" in str(done.error) and "c-0" in str(done.error) for done in failed)
    (tmp_path / "away").rename(tmp_path / "c-0")
    again = runner(grid(ends), tmp_path / "out")
    assert [cell for cell, done in again.state() if done is None] == [done.cell for done in failed]
    assert all(done.error is None for done in again.run())


class Absent(Words):
    """Data that cannot be had at first."""

    tried = 0
    is_here = False

    def prepare_data(self) -> None:
        type(self).tried += 1
        if not self.is_here:
            raise InputError("absent.txt is not here; expected it")


def test_what_cannot_be_had_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data come before training; neither data nor training that fails are tried in every cell that needs them."""
    monkeypatch.setattr(Absent, "tried", 0)
    trained: list[tuple[str, int]] = []

    def train(model: EndModel, seed: int, path: Path) -> None:
        trained.append((path.name.split("-")[0], seed))
        raise InputError("the hub cannot be reached")

    ends = {name: EndModel(Words(name), fit={"of": name}) for name in "ab"} | {"x": EndModel(Absent("x"), fit={})}
    finished = list(runner(grid(ends, seeds=(1, 2)), tmp_path, train).run())
    assert trained == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert Absent.tried == 1
    errors = {done.cell.models: done.error for done in finished}
    assert errors["x",] == errors["b", "x"] == "absent.txt is not here; expected it"
    assert errors["a", "b"] == "end model a, seed 2: the hub cannot be reached"


def test_a_test_set_that_is_missing_is_left_out_until_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out of domain it fails nothing; the cells say so, stay as they are, and are made again once it can be read."""
    folder, out = tmp_path / "ends", tmp_path / "out"

    def given() -> Grid:
        return grid(berts(folder), matchings={}, out_of_domain=(Absent("x"),))

    first = list(runner(given(), out).run())
    assert all(done.missing == {"x": "absent.txt is not here; expected it"} for done in first)
    assert all(row.data_set != "x" for done in first for row in done.rows)
    assert all(done is not None for _, done in runner(given(), out).state())
    monkeypatch.setattr(Absent, "is_here", True)
    assert all(done is None for _, done in runner(given(), out).state())
    second = list(runner(given(), out).run())
    assert all(not done.missing and "x" in {row.data_set for row in done.rows} for done in second)


def test_end_models_are_trained_once_for_each_seed_and_setting(tmp_path: Path) -> None:
    """What is there is used; other settings make another checkpoint."""
    trained: list[tuple[Any, int]] = []

    def train(model: EndModel, seed: int, path: Path) -> None:
        trained.append((dict(model.fit or {}), seed))
        checkpoints.save(bert(seed), path)

    def two(**settings: Any) -> Grid:
        ends = {name: EndModel(Words(name), fit={"name": name, **settings}) for name in "ab"}
        return grid(ends, seeds=(1, 2), multitask=EndModel(Words("all"), fit={"name": "all"}))

    finished = list(runner(two(), tmp_path, train).run())
    assert not [done.error for done in finished if done.error]
    wanted = [({"name": name}, seed) for seed in (1, 2) for name in ("a", "b", "all")]
    assert trained == wanted
    times = {done.cell.method: done.rows[0].seconds is not None for done in finished}
    assert times == {"end model": True, "multi-task": True, "ensemble": False, "simple": True}
    list(runner(two(), tmp_path, train).run())
    assert trained == wanted
    list(runner(two(steps=9), tmp_path, train).run())
    assert trained[6:] == [({"name": name, "steps": 9}, seed) for seed in (1, 2) for name in "ab"]
