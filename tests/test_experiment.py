"""One run from models to results."""

from typing import Any

import pytest
import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader

import fusionlab
from fusionlab.data import Digits
from fusionlab.errors import InputError
from fusionlab.evaluation.preservation import Preservation
from fusionlab.evaluation.results import Results
from fusionlab.experiment import NOTED_ROUNDING, Plan, rounding_notes, run
from fusionlab.fusion import Data, Fused, Matched, TestSet
from fusionlab.fusion.misfit import refuse_misfit
from fusionlab.inputs import Inputs
from fusionlab.matching.recipe import recipe
from fusionlab.trainers import ROUNDING
from tests.commands.small import digit_scores, vit

CPU = {"accelerator": "cpu", "devices": 1}
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*configure_optimizers.*",
    "ignore:Total length of.*",
    "ignore:.*does not have many workers.*",
    "ignore:.*LeafSpec.*",
)


class Named(Digits):
    """The zeros among the digits, under another name."""

    def __init__(self, name: str) -> None:
        super().__init__(classes=[0])
        self.name = name  # type: ignore[misc]


class Anonymous(LightningDataModule):
    """Data without a name: it has its class's."""

    def test_dataloader(self) -> DataLoader:
        return Digits(classes=[1]).test_dataloader()


def models() -> dict[str, Any]:
    return {name: vit(seed) for seed, name in enumerate("abc")}


def test_data_sets_have_different_names() -> None:
    """Equal names are numbered, also across domains and where a number is taken."""
    inside, outside = [Named("x"), Named("x"), Named("x 2"), Anonymous()], [Named("x")]
    data = Data.of(inside, outside)
    assert [(found.name, found.domain) for found in data.sets] == [
        ("x", "in"), ("x 2", "in"), ("x 2 2", "in"), ("Anonymous", "in"), ("x 3", "out"),
    ]  # fmt: skip
    assert len(data.loaders) == 5


def test_lines_run_from_the_anchor_to_every_other_model() -> None:
    """One curve for each source, matching and data set; its ends are the end models' own scores."""
    plan = Plan({"paper": recipe("paper")}, anchor=1, points=3, trainer=CPU)
    _, results = run(models(), Data.of([Named("x")], [Named("y")]), plan, "title")
    assert [(c.anchor, c.source, c.matching, c.data_set, c.domain) for c in results.curves] == [
        ("b", source, matching, name, domain)
        for source in ("a", "c")
        for matching in ("none", "paper")
        for name, domain in (("x", "in"), ("y", "out"))
    ]
    ends = {name: digit_scores(model, (0,)) for name, model in models().items()}
    for curve in results.curves:
        assert curve.positions == (0, 0.5, 1)
        assert curve.loss[0] == pytest.approx(ends["b"]["loss"], rel=1e-4)
        assert curve.loss[-1] == pytest.approx(ends[curve.source]["loss"], rel=1e-4)
        assert curve.score[-1] == pytest.approx(ends[curve.source]["accuracy"], rel=1e-6)


def results_of(precision: str) -> tuple[Fused, Results]:
    two = {name: vit(seed) for seed, name in enumerate("ab")}
    plan = Plan({"paper": recipe("paper")}, points=0, trainer=CPU | {"precision": precision})
    return run(two, Data.of([Named("x")]), plan, "title")


@pytest.mark.parametrize("precision", ["64-true", "bf16-mixed"])
def test_precision_never_reaches_the_merge(precision: str) -> None:
    """In another precision the scores differ a little; the merged weights, in float32, do not."""
    (plain, exact), (fused, results) = results_of("32-true"), results_of(precision)
    assert results.rows != exact.rows
    for row, other in zip(results.rows, exact.rows, strict=True):
        assert row.value == pytest.approx(other.value, rel=0.05, abs=0.05)
    merged = fused.candidates[-1].model.state_dict()
    for name, tensor in plain.candidates[-1].model.state_dict().items():
        assert merged[name].float().allclose(tensor, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"points": 2}, "points is 2; expected 0 for no lines, or at least 3"),
        ({"points": -2}, "points is -2"),
        ({"points": 10_001}, "points is 10001; expected at most 10,000"),
        ({"methods": {}}, "methods is empty; expected at least one merge method"),
    ],
)
def test_plans_that_cannot_be(keywords: dict[str, Any], message: str) -> None:
    """Refused when they are made."""
    with pytest.raises(InputError, match=message):
        Plan({}, **keywords)


def test_data_say_how_they_are_scored() -> None:
    """Task, class names and metric of a data module become those of its test set."""

    class Judged(Named):
        task = "classification"
        metric = "matthews"

    (test_set,) = Data.of([Judged("x")]).sets
    assert (test_set.task, test_set.options) == ("classification", {"metric": "matthews"})
    assert test_set.class_names == tuple(Judged("x").class_names)
    assert test_set.scores(vit()).main == "matthews"
    assert Data.of([Named("x")]).sets[0].options == {}


@pytest.mark.parametrize("precision", ROUNDING)
def test_precisions_that_round_the_models_are_refused_before_any_work(
    monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    """Lightning would round end models and merges in place, and the rounded merge would be written."""
    monkeypatch.setattr("fusionlab.fusion.Fuser.fuse", lambda self: pytest.fail("work was done"))
    with pytest.raises(InputError, match=f"precision is '{precision}', which rounds the models; expected 32-true"):
        run(models(), Data.of([Named("x")]), Plan({}, trainer=CPU | {"precision": precision}), "title")


def test_data_of_another_kind_is_refused_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch is tried first: nothing has been matched when the sentence comes."""
    monkeypatch.setattr("fusionlab.fusion.Fuser.fuse", lambda self: pytest.fail("work was done"))
    large = {name: vit(seed, image_size=16) for seed, name in enumerate("ab")}
    with pytest.raises(InputError, match=r"the data 'x' does not fit the models: .*16\*16"):
        run(large, Data.of([Named("x")]), Plan({}, trainer=CPU), "title")
    narrow = {name: vit(seed, num_labels=3) for seed, name in enumerate("ab")}
    with pytest.raises(InputError, match=r"'digits' does not fit the models: .* label . for a model of 3"):
        run(narrow, Data.of([Digits()]), Plan({}, trainer=CPU), "title")
    loader = DataLoader([torch.zeros(1, 8, 8)])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the data 'bare' gives no 'labels'"):
        run(models(), Data((TestSet("bare"),), (loader,)), Plan({}, trainer=CPU), "title")


@pytest.mark.parametrize("names", [["odd", "even"], ["even"], ["0", "1"], ["even", "odd"]])
def test_classes_in_another_order_are_refused_before_any_work(
    monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    """The first ones of the model, or numbers without names, are its own."""
    ends = {name: vit(seed, num_labels=2) for seed, name in enumerate("ab")}
    for model in ends.values():
        model.config.id2label = {0: "even", 1: "odd"}
    batch = {"pixel_values": torch.zeros(2, 1, 8, 8), "labels": torch.zeros(2, dtype=torch.long)}
    data = Data((TestSet("numbers", class_names=tuple(names)),), ([batch],))  # type: ignore[arg-type]
    if names[0] == "odd":
        with pytest.raises(InputError, match="class 0 of the data numbers is 'odd', but 'even' of the model"):
            refuse_misfit(list(ends.values()), data)
    else:
        refuse_misfit(list(ends.values()), data)


def test_twins_that_lose_their_function_by_rounding_are_told_of() -> None:
    """One sentence for the matching it happened to, with the worst of its twins; ordinary rounding is not told."""
    good, bad = Preservation(1e-12, 0.9 * NOTED_ROUNDING, 1.0), Preservation(1e-12, 0.3, 1.0)
    matched = {
        name: Matched([], [], checks, 0.0, recipe(name if name == "paper" else "weights"))
        for name, checks in {"paper": [good], "mine": [good, bad]}.items()
    }
    (note,) = rounding_notes(Fused(matched=matched))
    assert note.startswith("mine: ")
    assert "30.0%" in note


def test_notes_of_a_run_tell_of_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no tolerance at all, every matching of float32 models is told of."""
    monkeypatch.setattr("fusionlab.experiment.NOTED_ROUNDING", 0.0)
    _, results = run(models(), Data(), Plan({"paper": recipe("paper")}, trainer=CPU), "title")
    assert any(note.startswith("paper: ") for note in results.notes)


def test_without_data_the_notes_say_so() -> None:
    """Distances where something was matched, nothing otherwise."""
    _, matched = run(models(), Data(), Plan({"paper": recipe("paper")}, trainer=CPU), "title")
    fused, plain = run(models(), Data(), Plan({}, trainer=CPU), "title")
    assert "only distances" in matched.notes[0]
    assert matched.distances
    assert "nothing was measured" in plain.notes[0]
    assert not plain.all_rows()
    merged = fusionlab.merge(list(models().values())).state_dict()
    assert all(torch.equal(merged[n], t) for n, t in fused.candidates[-1].model.state_dict().items())


def test_matched_and_unmatched_are_compared_on_the_same_examples() -> None:
    """By every metric on every set: the rows' difference, with an interval over that set's examples."""
    plan = Plan({"paper": recipe("paper")}, {"simple": {}, "regmean": {}}, points=0, trainer=CPU)
    inputs = Inputs.of([Named("x")], 2, 20)
    two = {name: vit(seed) for seed, name in enumerate("ab")}
    _, results = run(two, Data.of([Named("x")], [Digits()]), plan, "title", inputs)
    value = {(row.method, row.matching, row.data_set, row.metric): row.value for row in results.rows}
    assert [(c.method, c.matching, c.data_set, c.domain, c.metric) for c in results.comparisons] == [
        (method, "paper", name, domain, metric)
        for name, domain in (("x", "in"), ("digits", "out"))
        for method in ("simple", "regmean")
        for metric in ("loss", "accuracy")
    ]
    for found in results.comparisons:
        key = (found.method, found.data_set, found.metric)
        after, before = (value[key[0], matching, *key[1:]] for matching in ("paper", "none"))
        assert (found.unmatched, found.matched) == (pytest.approx(before, rel=1e-5), pytest.approx(after, rel=1e-5))
        assert found.examples == {"x": 34, "digits": 397}[found.data_set or ""]
        assert found.lower is not None
        assert found.upper is not None
        assert found.lower <= found.difference + 1e-9
        assert found.upper >= found.difference - 1e-9
    assert results.kept == ("simple", "paper")
    assert {level.chance for level in results.levels if (level.data_set, level.metric) == ("x", "accuracy")} == {1.0}
