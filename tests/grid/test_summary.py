"""The summary: means, standard errors and paired intervals against numbers worked out by hand or by numpy."""

import csv
import io
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from fusionlab.evaluation.bootstrap import resamples
from fusionlab.evaluation.results import Row
from fusionlab.grid import tables
from fusionlab.grid.cells import Finished
from fusionlab.grid.design import Cell
from fusionlab.grid.summary import (
    BEST,
    OWN,
    SINGLE,
    Line,
    Mean,
    best_lines,
    divergences,
    headline_metric,
    summarize,
)


def cell(
    models: tuple[str, ...], method: str, matching: str, seed: int, scores: dict[tuple[str, str], float]
) -> Finished:
    """A finished cell with accuracies by (data set, domain), and a loss that must not count."""
    rows = [Row(models, method, matching, name, domain, "accuracy", value) for (name, domain), value in scores.items()]  # type: ignore[arg-type]
    rows += [Row(models, method, matching, name, domain, "loss", 9.0) for name, domain in scores]  # type: ignore[arg-type]
    return Finished(Cell(models, method, matching, seed), tuple(rows))


AB, AC = ("a", "b"), ("a", "c")


@pytest.fixture
def finished() -> list[Finished]:
    """Two pairs, one seed: end models, unmatched and matched."""
    return [
        cell(("a",), "end model", "-", 0, {("A", "in"): 0.9, ("B", "out"): 0.3, ("C", "out"): 0.5, ("X", "out"): 0.6}),
        cell(("b",), "end model", "-", 0, {("B", "in"): 0.8, ("A", "out"): 0.4, ("C", "out"): 0.1, ("X", "out"): 0.2}),
        cell(("c",), "end model", "-", 0, {("C", "in"): 0.7, ("A", "out"): 0.2, ("B", "out"): 0.1, ("X", "out"): 0.1}),
        cell(AB, "simple", "none", 0, {("A", "in"): 0.5, ("B", "in"): 0.7, ("X", "out"): 0.4}),
        cell(AB, "simple", "paper", 0, {("A", "in"): 0.6, ("B", "in"): 0.8, ("X", "out"): 0.4}),
        cell(AC, "simple", "none", 0, {("A", "in"): 0.4, ("C", "in"): 0.4, ("X", "out"): 0.3}),
        cell(AC, "simple", "paper", 0, {("A", "in"): 0.7, ("C", "in"): 0.7, ("X", "out"): 0.1}),
    ]


def find(lines: list[Line], method: str, matching: str = "-") -> Line:
    return next(line for line in lines if (line.method, line.matching) == (method, matching))


def test_merges(finished: list[Finished]) -> None:
    """The mean over data sets, then over pairs; its standard error; the paired change."""
    line = find(summarize(finished), "simple", "paper")
    in_domain, gain = line.scores["in"], line.gains["in"]
    assert in_domain is not None
    assert gain is not None
    assert (in_domain.value, in_domain.error) == (pytest.approx(0.7), pytest.approx(0, abs=1e-12))
    assert (gain.difference, gain.unmatched, gain.matched) == (
        pytest.approx(0.2), pytest.approx(0.5), pytest.approx(0.7),
    )  # fmt: skip
    # Both pairs hold the end model a: one number, which has a range and no interval.
    assert (gain.lower, gain.upper, gain.clusters, gain.pairs) == (None, None, 1, 2)
    assert (gain.smallest, gain.largest) == (pytest.approx(0.1), pytest.approx(0.3))
    outside = line.gains["out"]
    assert outside is not None
    assert outside.difference == pytest.approx(-0.1)
    unmatched = find(summarize(finished), "simple", "none")
    assert unmatched.gains["in"] is None
    plain = unmatched.scores["in"]
    assert plain is not None
    # Of 0.6 and 0.4: their standard deviation, the root of 0.02, over the root of two.
    assert (plain.value, plain.error, plain.count) == (pytest.approx(0.5), pytest.approx(0.1), 2)


def test_end_models_are_three_levels(finished: list[Finished]) -> None:
    """At home; on all test sets of a group; and the best one there."""
    lines = summarize(finished)
    levels = {name: find(lines, name).scores["in"] for name in (OWN, SINGLE, BEST)}
    known = {name: mean.value for name, mean in levels.items() if mean is not None}
    assert known[OWN] == pytest.approx((0.9 + 0.8 + 0.7) / 3)
    a_on_ab, b_on_ab, a_on_ac, c_on_ac = (0.9 + 0.3) / 2, (0.8 + 0.4) / 2, (0.9 + 0.5) / 2, (0.7 + 0.2) / 2
    assert known[SINGLE] == pytest.approx(((a_on_ab + b_on_ab) / 2 + (a_on_ac + c_on_ac) / 2) / 2)
    assert known[BEST] == pytest.approx((max(a_on_ab, b_on_ab) + max(a_on_ac, c_on_ac)) / 2)
    outside = find(lines, OWN).scores["out"]
    assert outside is not None
    assert outside.value == pytest.approx((0.6 + 0.2 + 0.1) / 3), "other end models' test sets are not out of domain"


def test_a_multitask_model_is_no_group(finished: list[Finished]) -> None:
    """It is measured on everybody's test sets, on which no pair was."""
    multitask = cell(("a", "b", "c"), "multi-task", "-", 0, {(name, "in"): 0.9 for name in "ABC"})
    lines = summarize([*finished, multitask])
    assert find(lines, "multi-task").scores["in"] == Mean(pytest.approx(0.9), None, 1)
    for level in (OWN, SINGLE, BEST):
        assert find(lines, level) == find(summarize(finished), level)


def test_an_end_model_that_was_not_measured_everywhere_is_no_level(finished: list[Finished]) -> None:
    """Its score at home is no score on all test sets of its group; without it the group has no best one."""
    own = [replace(done, rows=tuple(row for row in done.rows if row.domain == "in")) for done in finished[:3]]
    assert {line.method for line in summarize([*own, *finished[3:]])} == {OWN, "simple"}
    # Only the first pair is left, on which a and b were measured.
    lines = summarize([*finished[:2], own[2], *finished[3:]])
    assert find(lines, SINGLE).scores["in"] == Mean(pytest.approx(0.6), None, 1)
    lines = summarize([*finished[:2], *finished[3:]])
    assert find(lines, BEST).scores["in"] == Mean(pytest.approx(0.6), None, 1)


@pytest.mark.parametrize("metric", ["accuracy", "loss"])
@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_a_merge_that_diverges_is_not_shown_by_its_other_sets(
    finished: list[Finished], odd: float, metric: str
) -> None:
    """Its cell is missing in the mean, which says so and is never the best, and it has no change by matching.

    Also where its accuracy is a number, that of the first class, and only the loss is none.
    """
    rows = tuple(
        replace(row, value=odd) if (row.data_set, row.metric) == ("A", metric) else row for row in finished[6].rows
    )
    assert divergences(replace(finished[6], rows=rows)) == [
        f"{metric} on A is {'not a number' if math.isnan(odd) else 'infinite'}"
    ]
    lines = summarize([*finished[:6], replace(finished[6], rows=rows)])
    line = find(lines, "simple", "paper")
    # Of the second pair only set C is left, with 0.7.
    assert line.scores["in"] == Mean(pytest.approx(0.7), None, 1)
    gain = line.gains["in"]
    assert gain is not None
    assert (gain.difference, gain.lower, gain.pairs) == (pytest.approx(0.1), None, 1)
    assert gain.diverged == ("a + c, seed 0, matched",)
    outside = line.gains["out"]
    assert outside is not None
    assert (outside.pairs, outside.diverged) == (2, ()), "out of domain nothing diverged"
    assert "70.00 (1 of 2)" in tables.markdown(lines, "accuracy")
    assert [lines[index].matching for index in best_lines(lines, "in", "accuracy")] == []


def test_failed_cells_and_missing_partners(finished: list[Finished]) -> None:
    """A failed cell counts nowhere; a matched cell without its unmatched partner has no change."""
    failed = Finished(Cell(AC, "simple", "none", 0), (), error="no")
    line = find(summarize([*finished[:5], failed, finished[6]]), "simple", "paper")
    gain = line.gains["in"]
    assert gain is not None
    assert gain.difference == pytest.approx(0.1)
    assert (gain.lower, gain.diverged) == (None, ()), "a cell that failed did not diverge"


def test_a_mean_of_fewer_cells_is_marked_and_never_the_best(finished: list[Finished]) -> None:
    """Without the harder group a mean looks better than it is."""
    lines = summarize([*finished, cell(AB, "fisher", "none", 0, {("A", "in"): 1.0, ("B", "in"): 1.0})])
    (best,) = best_lines(lines, "in", "accuracy")
    assert (lines[best].method, lines[best].matching) == ("simple", "paper")
    assert "| fisher | unmatched | 100.00 (1 of 2) |" in tables.markdown(lines, "accuracy")


def failed(models: tuple[str, ...], method: str, matching: str) -> Finished:
    """A cell that gave no number."""
    return Finished(Cell(models, method, matching, 0), (), error="no")


def test_the_largest_of_incomplete_means_is_incomplete(finished: list[Finished]) -> None:
    """Also where every merge lacks a group, another one each, so that none shows how many there are."""
    lines = summarize([*finished[:4], failed(AB, "simple", "paper"), failed(AC, "simple", "none"), finished[6]])
    assert [(line.matching, line.lacks("in"), line.lacks("out")) for line in lines if line.is_merge] == [
        ("none", 1, 1), ("paper", 1, 1),
    ]  # fmt: skip
    assert best_lines(lines, "in", "accuracy") == frozenset()
    text = tables.markdown(lines, "accuracy")
    assert "60.00 (1 of 2)" in text
    assert "70.00 (1 of 2)" in text


def test_a_group_that_was_measured_nowhere_counts_where_others_were() -> None:
    """All of its cells failed: in domain it is missing; out of domain no group has a test set, so nothing is."""
    lines = summarize([*pairs_of([AB], [0.1]), failed(AC, "simple", "none"), failed(AC, "simple", "paper")])
    assert [line.lacks("in") for line in lines] == [1, 1]
    assert [line.whole for line in lines] == [{"in": 2, "out": 0}] * 2


def pairs_of(groups: list[tuple[str, ...]], gains: list[float], seeds: tuple[int, ...] = (0,)) -> list[Finished]:
    """Unmatched and matched merges of these groups; each seed has its groups' gains."""
    return [
        cell(group, "simple", matching, seed, {("A", "in"): 0.5 + gain * (matching == "paper")})
        for seed in seeds
        for group, gain in zip(groups, gains, strict=True)
        for matching in ("none", "paper")
    ]


def test_one_value_everywhere_has_a_point_as_interval() -> None:
    """No warning, no missing number."""
    apart = [(f"{name}1", f"{name}2") for name in "abcdef"]
    gain = find(summarize(pairs_of(apart, [0.25] * 6)), "simple", "paper").gains["in"]
    assert gain is not None
    assert (gain.difference, gain.lower, gain.upper) == (0.25, 0.25, 0.25)


def test_an_interval_needs_six_groups_that_share_no_end_model() -> None:
    """Six pairs of twelve models have one; fifteen pairs of six models are one cluster; two pairs are two numbers."""
    gains = np.random.default_rng(0).uniform(0, 0.4, 15).tolist()
    apart = [(f"{name}1", f"{name}2") for name in "abcdefgh"]
    found = find(summarize(pairs_of(apart, gains[:8])), "simple", "paper").gains["in"]
    assert found is not None
    assert found.clusters == found.pairs == 8
    draws = np.concatenate(list(resamples(8))) @ np.array(gains[:8]) / 8
    assert (found.lower, found.upper) == pytest.approx(tuple(np.percentile(draws, [2.5, 97.5])))
    assert (
        f"[{100 * found.lower:+.2f}, {100 * found.upper:+.2f}]"
        in tables.markdown(  # type: ignore[operator]
            summarize(pairs_of(apart, gains[:8])), "accuracy"
        )
    )
    for groups in (list(itertools.combinations("abcdef", 2)), apart[:2], apart[:5]):
        lines = summarize(pairs_of(groups, gains[: len(groups)]))
        found = find(lines, "simple", "paper").gains["in"]
        assert found is not None
        assert (found.lower, found.upper) == (None, None)
        low, high = (f"{100 * end:+.2f}" for end in (min(gains[: len(groups)]), max(gains[: len(groups)])))
        assert f"({low} to {high})" in tables.markdown(lines, "accuracy")
        assert "[" not in tables.markdown(lines, "accuracy").splitlines()[-3]


def test_seeds_of_given_checkpoints_may_be_one_model() -> None:
    """Six seeds of one pair are six models each; where the checkpoint is the same for all they are one."""
    six = pairs_of([AB], [0.1], seeds=tuple(range(6)))
    found = find(summarize(six), "simple", "paper").gains["in"]
    assert found is not None
    assert (found.clusters, found.lower) == (6, pytest.approx(0.1))
    found = find(summarize(six, lambda name, seed: name), "simple", "paper").gains["in"]
    assert found is not None
    assert (found.clusters, found.lower) == (1, None)


def test_a_matching_that_always_diverges_is_told() -> None:
    """With no number at all."""
    diverged = [
        replace(done, rows=tuple(replace(row, value=math.nan) for row in done.rows))
        if done.cell.matching == "paper"
        else done
        for done in pairs_of([AB, AC], [0.1, 0.1])
    ]
    lines = summarize(diverged)
    gain = find(lines, "simple", "paper").gains["in"]
    assert gain is not None
    assert math.isnan(gain.difference)
    assert gain.diverged == ("a + b, seed 0, matched", "a + c, seed 0, matched")
    assert "| diverged |" in tables.markdown(lines, "accuracy")


def test_a_change_of_no_pairs_has_no_numbers() -> None:
    """What matching adds to a merge that diverged unmatched in every group is told, and an empty cell as data."""
    lines = summarize(
        [
            replace(done, rows=tuple(replace(row, value=math.nan) for row in done.rows))
            if done.cell.matching == "none"
            else done
            for done in pairs_of([AB, AC], [0.1, 0.1])
        ]
    )
    gain = find(lines, "simple", "paper").gains["in"]
    assert gain is not None
    assert (gain.pairs, gain.diverged) == (0, ("a + b, seed 0, unmatched", "a + c, seed 0, unmatched"))
    (row,) = csv.DictReader(io.StringIO(tables.comma_separated(lines)))
    assert (row["matching"], row["mean"], row["count"]) == ("paper", "0.6", "2")
    assert {name: row[name] for name in row if name.startswith("gain")} == dict.fromkeys(
        ("gain", "gain_low", "gain_high", "gain_smallest", "gain_largest", "gain_pairs", "gain_clusters"), ""
    )


def test_tables_say_the_same(finished: list[Finished]) -> None:
    """Every format holds the mean, and marks the same best merge."""
    lines, metric = summarize(finished), headline_metric(finished)
    assert metric == "accuracy"
    (best,) = best_lines(lines, "in", metric)
    assert lines[best].matching == "paper"
    assert "**70.00 ± 0.00**" in tables.markdown(lines, metric)
    assert r"\textbf{70.00 $\pm$ 0.00}" in tables.latex(lines, metric)
    assert "simple,paper,in,0.7" in tables.comma_separated(lines)
    heads = tables.markdown(lines, metric).splitlines()[0]
    assert heads.count("|") == tables.markdown(lines, metric).splitlines()[2].count("|")
