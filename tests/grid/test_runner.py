"""Running a grid: numbers as worked out by hand, resuming, failures, training on the way, the published faults."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fusionlab import checkpoints
from fusionlab.data import Digits
from fusionlab.errors import InputError
from fusionlab.evaluation.results import Row
from fusionlab.fusion import FusionModule
from fusionlab.grid.cells import Finished
from fusionlab.grid.data_sets import TestData
from fusionlab.grid.design import Cell, EndModel, Grid
from fusionlab.grid.details import geometry
from fusionlab.grid.estimate import estimate, probe
from fusionlab.grid.published import with_published_faults
from fusionlab.grid.summary import summarize
from fusionlab.inputs import Inputs
from fusionlab.matching.recipe import recipe
from fusionlab.merging import merge_states
from fusionlab.statistics import basis_of, store
from tests.commands.small import bert, digit_scores, vit
from tests.grid.toys import Words, berts, grid, runner, vits

BOTH: dict[str, Any] = {"simple": {}, "regmean": {}}


def value(finished: list[Finished], cell: Cell, data_set: str, metric: str = "accuracy") -> float:
    """One number of one cell."""
    (done,) = [done for done in finished if done.cell == cell]
    assert done.error is None, done.error
    (row,) = [row for row in done.rows if (row.data_set, row.metric) == (data_set, metric)]
    return row.value


def numbers(finished: list[Finished]) -> list[Row]:
    """All rows without their times."""
    return [replace(row, seconds=None) for done in finished for row in done.rows]


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


def test_seeds_in_paths_and_hub_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`{seed}` stands for the seed in both; other braces stay as they are."""
    read: list[str] = []

    def load(path: str) -> nn.Module:
        read.append(path)
        return bert(0)

    monkeypatch.setattr(checkpoints, "load", load)
    ends = {"a": EndModel(Words("a"), ckpt="team/model-{seed}"), "b": EndModel(Words("b"), ckpt="in/{x}/{seed}/b")}
    list(runner(grid(ends, seeds=(3,)), tmp_path).run())
    assert set(read) == {"team/model-3", "in/{x}/3/b"}


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


def test_statistics_are_gathered_once_for_all_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three pairs of three models need three passes for unmatched RegMean, in this start and in the next."""
    passes: list[str] = []
    gather = store.gather
    monkeypatch.setattr(
        store, "gather", lambda m, *a, **k: passes.append(basis_of(m.state_dict())) or gather(m, *a, **k)
    )
    given = grid(vits(tmp_path), methods={"regmean": {}}, matchings={})
    whole = list(runner(given, tmp_path / "out").run())
    assert len(passes) == len(set(passes)) == 3
    for file in (tmp_path / "out" / "cells").iterdir():
        file.unlink()
    assert numbers(list(runner(given, tmp_path / "out").run())) == numbers(whole)
    assert len(passes) == 3


def test_own_heads(tmp_path: Path) -> None:
    """Tasks that differ: each test set is answered under its own model's head, and there is no ensemble."""
    ends = {}
    for index, (name, classes) in enumerate((("a", 2), ("b", 3))):
        model = bert(index)
        model.classifier = nn.Linear(16, classes)
        model.num_labels = model.config.num_labels = classes
        checkpoints.save(model, tmp_path / name)
        ends[name] = EndModel(Words(name, classes=classes), ckpt=str(tmp_path / name))
    finished = list(runner(grid(ends, heads="own", methods=BOTH), tmp_path / "out").run())
    assert not [done.error for done in finished if done.error]
    assert {done.cell.method for done in finished} == {"end model", "simple", "regmean"}
    assert all({row.data_set for row in done.rows} == set(done.cell.models) for done in finished)
    for changes in ({"points": 3}, {"out_of_domain": (Words("c"),)}, {"multitask": EndModel(Words("d"), ckpt="d")}):
        with pytest.raises(InputError, match="heads is 'own', under which no head answers for"):
            grid(ends, heads="own", **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"methods": {}}, "methods is empty"), ({"test_samples": 0}, "test_samples is 0"), ({"points": 1}, "points is 1")],
)
def test_wrong_values(changes: dict[str, Any], message: str) -> None:
    """Refused before any work."""
    with pytest.raises(InputError, match=message):
        grid({name: EndModel(Words(name), ckpt=name) for name in "ab"}, **changes)


# --- estimate ---------------------------------------------------------------------------------------------------------


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
        alike = [d.seconds for d in done if (d.cell.method, d.cell.matching) == (line.method, line.matching)]
        if line.method != "end model":
            assert (line.missing, line.seconds) == (1, pytest.approx(sum(sorted(alike)[:2]) / 2, rel=2))
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


# --- published protocol -----------------------------------------------------------------------------------------------


def test_published_regmean_of_text_is_the_plain_average(tmp_path: Path) -> None:
    """To the last bit, matched or not; under the corrected protocol it is not, and for images it never is."""
    ends = berts(tmp_path)
    for protocol, same in (("published", True), ("corrected", False)):
        finished = list(runner(grid(ends, protocol=protocol, methods=BOTH), tmp_path / protocol).run())
        for matching in ("none", "paper"):
            losses = [
                value(finished, Cell(("a", "b"), method, matching, 0), "a", "loss") for method in ("simple", "regmean")
            ]
            assert (losses[0] == losses[1]) is same
    two = dict(list(vits(tmp_path).items())[:2])
    images = list(runner(grid(two, protocol="published", methods=BOTH), tmp_path / "images").run())
    pair = [Cell(("a", "b"), method, "none", 0) for method in ("simple", "regmean")]
    assert value(images, pair[0], "digits", "loss") != value(images, pair[1], "digits", "loss")


def test_published_fisher_is_that_of_the_unmatched_models() -> None:
    """The merge of twins is weighted with the end models' Fisher information, name by name, as it stands."""
    models = {"a": vit(0), "b": vit(1)}
    inputs = Inputs.of([Digits(), Digits()], 2, 30)
    made = {}
    for kind in (FusionModule, with_published_faults(FusionModule)):
        module = kind(models, {"paper": recipe("paper")}, {"fisher": {}}, inputs=inputs)
        made[kind is FusionModule] = module.merge("fisher", "paper").model.state_dict()
        twins = module.match("paper").twins
        stale = [module.store.of(i, model, ["fisher"]) for i, model in enumerate(module.end_models)]
        in_twin = [
            {"fisher": replace(found["fisher"], basis=basis_of(twin.state_dict()))}
            for found, twin in zip(stale, twins, strict=True)
        ]
        states = [twin.state_dict() for twin in twins]
        wanted = merge_states(states, "fisher", module.weights, blueprint=module.blueprint, statistics=in_twin)
    difference = max(float((made[False][name] - wanted[name]).abs().max()) for name in wanted)
    corrected = max(float((made[True][name] - wanted[name]).abs().max()) for name in wanted)
    assert difference == 0
    assert corrected > 1e-3


def test_published_decisions() -> None:
    """A label needs a logit of 0.5, a stray I- tag begins an entity; corrected ones are the tasks' own."""
    for task, options in (("multilabel", {"decision": "logit"}), ("tokens", {"mode": "conlleval"}), (None, {})):
        ends = {name: EndModel(Words(name, task=task), ckpt=name) for name in "ab"}  # type: ignore[arg-type]
        for protocol, wanted in (("published", options), ("corrected", {})):
            data = TestData(grid(ends, protocol=protocol))
            assert [s.options for s in data.of(Cell(("a", "b"), "simple", "none", 0)).sets] == [wanted, wanted]


def test_published_multilabel_scores_follow_the_threshold(tmp_path: Path) -> None:
    """The same models and data give other scores, on end models as well."""
    ends = berts(tmp_path, task="multilabel")
    scores = {}
    for protocol in ("published", "corrected"):
        finished = list(runner(grid(ends, protocol=protocol), tmp_path / protocol).run())
        scores[protocol] = value(finished, Cell(("a",), "end model", "-", 0), "a", "micro_f1")
    assert scores["published"] != scores["corrected"]
