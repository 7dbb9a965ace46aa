"""The folder of results: every table and file, means over seeds, what failed or was left out, shared texts."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fusionlab.data import Digits
from fusionlab.evaluation.comparison import Measured
from fusionlab.evaluation.contributions import Answers, Contributions, Record
from fusionlab.evaluation.distances import Distance
from fusionlab.evaluation.results import Curve, Row
from fusionlab.grid.cells import Finished
from fusionlab.grid.design import Cell, EndModel, Grid
from fusionlab.grid.details import by_data_set, by_group, geometry
from fusionlab.grid.folder import compare_groups, failures, shared_texts, write_results
from fusionlab.grid.summary import Mean
from tests.grid.toys import Words, grid

AB, AC = ("a", "b"), ("a", "c")


def merge(models: tuple[str, ...], matching: str, seed: int, score: float, far: float = 1.0) -> Finished:
    """A merge with one score in domain and one out of domain, a line and a distance."""
    method = "simple"
    rows = [
        Row(models, method, matching, models[1].upper(), "in", "accuracy", score, 2.0),
        Row(models, method, matching, "X", "out", "accuracy", score / 2, 2.0),
    ]
    curve = Curve(models[1], "a", matching, models[1].upper(), "in", (0.0, 0.5, 1.0), (1.0, 2.0 + seed, 1.0), (1, 0, 1))
    parts = [Distance(models[1], "a", matching, role, 0, 3.0, 3.0 * far) for role in ("ffn", "attention.vo")]
    return Finished(
        Cell(models, method, matching, seed), tuple(rows), (curve,), () if matching == "none" else tuple(parts), 3.0
    )


@pytest.fixture
def finished() -> list[Finished]:
    """Two pairs and two seeds, unmatched and matched; one cell failed, one lacks a test set."""
    cells = [merge(group, "none", seed, 0.2 + 0.2 * seed) for seed in (0, 1) for group in (AB, AC)]
    cells += [merge(group, "paper", seed, 0.4 + 0.2 * seed, 0.5) for seed in (0, 1) for group in (AB, AC)]
    failed = [Finished(Cell(group, "fisher", "none", 0), (), error="b: no such file") for group in (AB, AC)]
    return [*cells, *failed, Finished(Cell(("a",), "end model", "-", 0), (), missing={"Y": "the hub is away"})]


@pytest.fixture
def given() -> Grid:
    """The grid they belong to."""
    ends = {name: EndModel(Words(name), ckpt=name) for name in "abc"}
    return grid(ends, groups=(AB, AC), seeds=(0, 1), out_of_domain=(Words("x", seed=3), Digits()))


def test_everything_is_written_and_agrees(tmp_path: Path, finished: list[Finished], given: Grid) -> None:
    """Tables for people and for programs; results hold means over seeds, the page names what failed."""
    write_results(finished, given, tmp_path, "A grid", "fusionlab compare --config grid.yaml", nothing)
    names = {path.name for path in tmp_path.iterdir()}
    wanted = {"summary.md", "summary.tex", "summary.csv", "results.json", "results.csv", "report.html", "plots"}
    assert wanted | {"tensorboard"} <= names
    rows = json.loads((tmp_path / "results.json").read_text())
    (found,) = [r["value"] for r in rows if (r["models"], r["matching"], r["data_set"]) == (["a", "b"], "paper", "B")
                and r["metric"] == "accuracy"]  # fmt: skip
    assert found == pytest.approx((0.4 + 0.6) / 2)
    far = [r["value"] for r in rows if r["metric"] == "distance_to_anchor" and r["matching"] == "paper"]
    assert far == pytest.approx([1.5 * 2**0.5] * 2)
    text = (tmp_path / "summary.md").read_text()
    for part in (
        "# A grid",
        "**50.00 ± 5.77**",
        "+20.00 (+20.00 to +20.00)",
        "| a + b |",
        "Failed: ",
        "Not measured on Y",
    ):
        assert part in text
    page = (tmp_path / "report.html").read_text()
    assert "no such file" in page
    assert "fusionlab compare --config grid.yaml" in page
    write_results(finished, given, tmp_path, "A grid", "again", nothing)
    assert (tmp_path / "summary.md").read_text() == text


def test_sets_that_are_judged_by_different_metrics(tmp_path: Path, finished: list[Finished], given: Grid) -> None:
    """Such as Matthews' correlation and Pearson's of figure 6: their mean is a score, of which more is better."""
    others = [
        replace(done, rows=tuple(replace(row, metric="pearson") if row.data_set == "X" else row for row in done.rows))
        for done in finished
    ]
    write_results(others, given, tmp_path, "A grid", "again", nothing)
    text = (tmp_path / "summary.md").read_text()
    assert "score" in text.splitlines()[1]
    assert "0.500 ± 0.058" in text


def test_what_a_method_told_is_listed_by_cell(tmp_path: Path, finished: list[Finished], given: Grid) -> None:
    at, cell = next((at, done.cell) for at, done in enumerate(finished) if done.cell.is_merge)
    finished[at] = replace(finished[at], told=("Kept a of 2 models.",))
    write_results(finished, given, tmp_path, "A grid", "again", nothing)
    assert f"- {cell.name}: Kept a of 2 models.\n" in (tmp_path / "summary.md").read_text()
    assert "Kept a of 2 models." in (tmp_path / "report.html").read_text()


def nothing(cells: Iterable[Cell]) -> list[Measured]:
    """Cells that were made before examples were kept."""
    return []


def examples(cells: Iterable[Cell]) -> list[Measured]:
    """Matched merges answer 60 of 100 examples rightly, unmatched ones 50, whatever the seed."""
    found = []
    for cell in cells:
        right = torch.arange(100).lt(60 if cell.matching == "paper" else 50).float()
        record = Record()
        record.add("accuracy", "mean", right, torch.ones(100))
        answers = record.answers(lambda actual: {"accuracy": 0.1})
        for name, domain in ((cell.models[-1].upper(), "in"), ("X", "out")):
            found.append(Measured(cell.models, cell.method, cell.matching, name, domain, answers, cell.seed))  # type: ignore[arg-type]
    return found


def test_groups_are_compared_on_their_test_examples(finished: list[Finished]) -> None:
    """Each by itself, over its seeds, on every set; none where the test data are not the same any more."""
    comparisons, levels, notes = compare_groups(finished, examples)
    assert [(c.models, c.data_set) for c in comparisons] == [(AB, "B"), (AB, "X"), (AC, "C"), (AC, "X")]
    assert [c.difference for c in comparisons] == pytest.approx([0.1] * 4)
    assert all(c.lower is not None and 0 < c.lower < 0.1 for c in comparisons)
    assert {level.models for level in levels} == {AB, AC, ("a",)}
    assert not notes
    # And with the end model of it that was measured there too; of the others nothing is known.
    own = {(one.models, one.matching, one.data_set): one.references for one in levels if len(one.models) > 1}
    for group in (AB, AC):
        (reference,) = own[group, "paper", "X"]
        assert reference.reference == ("a",)
        assert reference.difference == pytest.approx(0.1)
        assert reference.lower is not None
        assert 0 < reference.lower < 0.1
        assert own[group, "paper", group[1].upper()] == ()
    assert len(levels) == len({(one.models, one.method, one.matching, one.data_set, one.metric) for one in levels})


def test_an_end_model_of_other_examples_costs_a_group_nothing_but_the_comparison_with_it(
    finished: list[Finished],
) -> None:
    """As one that was measured before its test data changed."""

    def changed(cells: Iterable[Cell]) -> list[Measured]:
        short = Answers({"accuracy": Contributions("mean", np.ones((7, 2)))}, {})
        return [replace(one, answers=short) if len(one.models) == 1 else one for one in examples(cells)]

    expected, (comparisons, levels, notes) = compare_groups(finished, examples)[0], compare_groups(finished, changed)
    assert not notes
    assert comparisons == expected
    assert all(level.references == () for level in levels)


def test_an_end_model_is_compared_on_a_set_that_is_in_domain_for_the_group(finished: list[Finished]) -> None:
    """Out of its own domain, as it was trained on the data of another one of the group."""

    def shared(cells: Iterable[Cell]) -> list[Measured]:
        return [
            replace(one, data_set="B", domain="out" if len(one.models) == 1 else "in")
            for one in examples(cells)
            if one.domain == "in"
        ]

    ends = [Finished(Cell((name,), "end model", "-", 0), ()) for name in "ab"]
    _, levels, notes = compare_groups([*(done for done in finished if done.cell.models == AB), *ends], shared)
    assert not notes
    (found,) = (one for one in levels if one.matching == "paper")
    assert [one.reference for one in found.references] == [("a",), ("b",), AB]
    assert [one.domain for one in levels if one.models == ("a",)] == ["out"]

    def changed(cells: Iterable[Cell]) -> list[Measured]:
        found = examples(cells)
        short = Contributions("mean", np.ones((7, 2)))
        return [*found[:-1], replace(found[-1], answers=Answers({"accuracy": short}, {}))]

    comparisons, _, notes = compare_groups(finished, changed)
    assert not comparisons
    assert notes[0].startswith("a + b: answers to [7, 100] examples cannot be paired")
    assert "Remove its files from cells/" in notes[0]


def test_the_page_of_one_group_speaks_of_examples_and_of_several_of_groups(
    tmp_path: Path, finished: list[Finished], given: Grid
) -> None:
    """Two pairs that share a model are described; one pair has an interval over its test examples."""
    write_results(finished, given, tmp_path / "several", "A grid", "again", examples)
    page = (tmp_path / "several" / "report.html").read_text()
    assert "Matching cannot be judged in domain and out of domain without an interval." in page
    assert "they fall into 1 cluster without a common end model, and an interval needs 6" in page
    assert "Every group by itself" in page
    assert (
        "Of 4 comparisons of one group on one data set, plain averaging matched by <code>paper</code> helps in 4."
        in page
    )
    one = [done for done in finished if done.cell.models in (AB, ("a",))]
    write_results(one, replace(given, groups=(AB,)), tmp_path / "one", "A grid", "again", examples)
    assert "Matching helps on B (in" in (tmp_path / "one" / "report.html").read_text()


def test_failures_are_told_once_for_each_reason(finished: list[Finished]) -> None:
    """With how many cells there are."""
    assert failures(finished) == [
        "Not measured on Y: the hub is away",
        "Failed: seed 0, a + b, fisher, none and 1 more cells: b: no such file",
    ]


def test_groups(finished: list[Finished]) -> None:
    """One line a group: means over seeds in each domain; end models have none."""
    groups = by_group(finished, "in")
    assert [group.models for group in groups] == [AB, AC]
    assert groups[0].scores["simple", "none"].value == pytest.approx(0.3)
    assert by_group(finished, "out")[1].scores["simple", "paper"].value == pytest.approx(0.25)


def test_data_sets(finished: list[Finished]) -> None:
    """One column a data set, in domain first; means over the groups that it belongs to."""
    columns, values = by_data_set(finished)
    assert columns == [("in", "B", "accuracy"), ("in", "C", "accuracy"), ("out", "X", "accuracy")]
    outside = values["simple", "paper"][2]
    assert outside is not None
    assert (outside.value, outside.count) == (pytest.approx(0.25), 4)
    assert values["end model", "-"] == [None, None, None]


def test_geometry(finished: list[Finished]) -> None:
    """Barriers are means over lines; distances before any matching stand beside those after it."""
    unmatched, paper = geometry(finished)
    assert (unmatched.matching, paper.matching) == ("none", "paper")
    barrier, far, near = unmatched.barrier, unmatched.distance, paper.distance
    assert isinstance(barrier, Mean) and isinstance(far, Mean) and isinstance(near, Mean)  # noqa: PT018
    assert barrier.value == pytest.approx((1 + 1 + 2 + 2) / 4)
    assert far.value == pytest.approx(3 * 2**0.5)
    assert near.value == pytest.approx(1.5 * 2**0.5)
    assert (far.count, near.count) == (4, 4)


def test_a_line_that_diverges_leaves_no_mean(tmp_path: Path, finished: list[Finished], given: Grid) -> None:
    """Of its matching alone; everything is written all the same."""
    place = next(place for place, done in enumerate(finished) if done.curves and done.cell.matching == "paper")
    curve = replace(finished[place].curves[0], loss=(1.0, float("nan"), 1.0))
    finished[place] = replace(finished[place], curves=(curve,))
    unmatched, paper = geometry(finished)
    assert unmatched.barrier is not None
    assert paper.barrier is not None
    assert np.isfinite(unmatched.barrier.value)
    assert np.isnan(paper.barrier.value)
    write_results(finished, given, tmp_path, "A grid", "again", nothing)
    assert "diverged" in (tmp_path / "summary.md").read_text()


def test_shared_texts(given: Grid) -> None:
    """Each end model against each test set; data without texts and data that cannot be read are passed over."""
    found = shared_texts(given)
    assert len(found) == 3 * 4
    assert found[1] == "1 of 2 test texts of b (50.0 %) are training texts of a too."


def test_texts_are_read_once(given: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many test sets an end model's training texts are compared with."""
    read: list[str] = []
    texts = Words.texts
    monkeypatch.setattr(Words, "texts", lambda self, split: read.append(f"{split} {self.name}") or texts(self, split))
    shared_texts(given)
    assert sorted(read) == [*(f"test {name}" for name in "abcx"), *(f"train {name}" for name in "abc")]
