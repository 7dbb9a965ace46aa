"""Results are data: the barrier is its definition, and what is written can be read back without loss."""

import csv
import json
import math

import pytest

from fusionlab.evaluation.comparison import Comparison
from fusionlab.evaluation.distances import Distance, TotalDistance
from fusionlab.evaluation.results import UNMATCHED, Curve, Results, Row, main_columns

POSITIONS = (0.0, 0.3, 0.5, 0.9, 1.0)


def curve(loss: tuple[float, ...], positions: tuple[float, ...] = POSITIONS, matching: str = "paper") -> Curve:
    return Curve("b", "a", matching, "digits", "in", positions, loss, tuple(1 / (1 + value) for value in loss))


@pytest.mark.parametrize(
    "loss",
    [(0.5, 3.0, 2.9, 0.7, 0.5), (0.1, 0.2, 2.0, 2.3, 2.5), (2.5, 2.6, 0.9, 0.4, 0.1), (1.0, 0.4, 0.2, 0.5, 0.9)],
    ids=["equal ends", "rising ends", "falling ends", "valley"],
)
def test_barrier_is_the_largest_height_above_the_chord(loss: tuple[float, ...]) -> None:
    heights = [value - ((1 - t) * loss[0] + t * loss[-1]) for t, value in zip(POSITIONS, loss, strict=True)]
    assert curve(loss).barrier == pytest.approx(max(heights), abs=1e-12)


def test_a_curve_under_its_chord_has_no_barrier() -> None:
    assert curve((1.0, 0.4, 0.2, 0.5, 0.9)).barrier == 0


def test_a_loss_that_is_not_a_number_is_not_passed_over() -> None:
    assert math.isnan(curve((1.0, 5.0, math.nan, 0.5, 0.9)).barrier)
    assert math.isnan(curve((1.0, math.nan, 5.0, 0.5, 0.9)).barrier)
    assert curve((1.0, 2.0, math.inf, 0.5, 0.9)).barrier == math.inf


def test_the_midpoint_is_read_off_the_grid_or_interpolated() -> None:
    on = curve((0.0, 1.0, 7.0, 1.0, 0.0))
    assert (on.midpoint_loss, on.midpoint_score) == (7.0, 1 / 8)
    off = curve((0.0, 1.0, 3.0, 0.0), positions=(0.0, 0.4, 0.8, 1.0))
    assert off.midpoint_loss == pytest.approx(1.5)
    assert off.midpoint_score == pytest.approx(0.75 * (1 / 2) + 0.25 * (1 / 4))


@pytest.mark.parametrize("positions", [(0.0, 0.5, 0.4, 0.9, 1.0), (0.1, 0.3, 0.5, 0.9, 1.0), (0.0, 0.5, 1.0)])
def test_positions_must_rise_from_0_to_1_with_one_value_each(positions: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="curve"):
        curve((0.0, 1.0, 2.0, 1.0, 0.0), positions=positions)


def full_results() -> Results:
    rows = [
        Row(("a", "b"), "simple", "paper", "digits", "in", "accuracy", 1 / 3, 0.1),
        Row(("a", "b"), "simple", UNMATCHED, "digits", "in", "accuracy", 0.1234567890123456, 2.5e-9),
        Row(("a", "b"), "simple", UNMATCHED, "svhn", "out", "loss", math.pi, None),
        Row(("a", "b"), "simple", "paper", "svhn", "out", "loss", 2.0, None),
        Row(("a",), "end model", "-", "digits", "in", "accuracy", 0.957, None),
    ]
    distances = [
        Distance("b", "a", "paper", "ffn", 0, 3.0, 2.0),
        Distance("b", "a", "paper", "attention.qk", None, 4.0, 1.0),
    ]
    return Results("t", ("a", "b"), rows, [curve((0.5, 3.0, 2.9, 0.7, 0.6))], distances)


def test_json_keeps_every_row_with_all_digits(tmp_path) -> None:
    results = full_results()
    results.write_json(tmp_path / "results.json")
    read = json.loads((tmp_path / "results.json").read_text())
    assert list(read[0]) == ["models", "method", "matching", "data_set", "domain", "metric", "value", "seconds"]
    assert [Row(**{**row, "models": tuple(row["models"])}) for row in read] == results.all_rows()
    assert [row["metric"] for row in read[5:]] == ["barrier", "distance_to_anchor", "distance_to_anchor"]


def test_csv_keeps_every_row_with_all_digits(tmp_path) -> None:
    results = full_results()
    results.write_csv(tmp_path / "results.csv")
    with (tmp_path / "results.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    for line, row in zip(read, results.all_rows(), strict=True):
        assert tuple(line["models"].split(" + ")) == row.models
        assert float(line["value"]) == row.value
        assert (float(line["seconds"]) if line["seconds"] else None) == row.seconds
        assert (line["matching"], line["data_set"], line["domain"]) == (
            row.matching,
            row.data_set or "",
            row.domain or "",
        )


def test_a_value_that_is_not_finite_still_makes_valid_json() -> None:
    results = Results("t", ("a",), [Row(("a",), "end model", "-", "digits", "in", "loss", math.inf)])
    assert json.loads(results.to_json(), parse_constant=pytest.fail)[0]["value"] is None


def test_total_distance_is_the_root_of_the_summed_squares() -> None:
    assert full_results().total_distances() == [TotalDistance("a", "b", "paper", 5.0, math.sqrt(5.0), None)]


def test_a_gauge_has_rows_of_its_own() -> None:
    """Unmatched models as they come, then in the gauge, then matched; matchings without a gauge have no such row."""
    distances = [
        Distance("b", "a", "weights", "ffn", 0, 3.0, 2.0, 30.0),
        Distance("b", "a", "weights", "ffn", 1, 4.0, 1.5, 40.0),
        Distance("b", "a", "paper", "ffn", 0, 30.0, 29.0),
        Distance("b", "a", "paper", "ffn", 1, 40.0, 30.0),
    ]
    rows = Results("t", ("a", "b"), distances=distances).all_rows()
    assert [(row.matching, row.metric, row.value) for row in rows] == [
        (UNMATCHED, "distance_to_anchor", 50.0),
        ("weights", "distance_to_anchor_in_gauge", 5.0),
        ("weights", "distance_to_anchor", 2.5),
        ("paper", "distance_to_anchor", pytest.approx(41.725292)),
    ]
    assert {row.models for row in rows} == {("a", "b")}


def test_the_table_has_one_line_for_each_merge_and_one_column_for_each_metric_of_a_data_set() -> None:
    table = full_results().table()
    assert [(c.domain, c.data_set, c.metric) for c in table.columns] == [
        ("in", "digits", "accuracy"),
        ("out", "svhn", "loss"),
    ]
    assert [(e.method, e.matching, e.values) for e in table.entries] == [
        ("end model", "-", (0.957, None)),
        ("simple", UNMATCHED, (0.1234567890123456, math.pi)),
        ("simple", "paper", (1 / 3, 2.0)),
    ]
    assert [entry.seconds for entry in table.entries] == [None, 2.5e-9, 0.1]


def test_the_best_merge_is_never_an_end_model_and_knows_that_a_loss_should_be_small() -> None:
    table = full_results().table()
    assert [table.best(0), table.best(1)] == [{2}, {2}]
    worse = [Row(("a", "b"), "simple", "paper", "svhn", "out", "loss", 9.0)]
    table = Results("t", ("a", "b"), full_results().rows + worse).table()
    assert table.best(1) == {1}


def test_one_merge_alone_is_not_called_the_best() -> None:
    table = Results("t", ("a",), [Row(("a", "b"), "simple", UNMATCHED, "d", "in", "accuracy", 0.5)]).table()
    assert table.best(0) == frozenset()


@pytest.mark.parametrize(
    ("metrics", "main"),
    [
        (("loss", "accuracy"), "accuracy"),
        (("loss", "macro_f1", "micro_f1"), "macro_f1"),
        (("loss", "pearson", "spearman"), "pearson"),
        (("loss", "perplexity"), "perplexity"),
        (("loss",), "loss"),
    ],
)
def test_the_main_column_is_what_scores_call_their_main_metric(metrics: tuple[str, ...], main: str) -> None:
    """One for each data set: never the loss where there is anything else."""
    rows = [Row(("a",), "end model", "-", name, "in", metric, 0.5) for name in ("x", "y") for metric in metrics]
    columns = main_columns(Results("title", ("a",), rows).table())
    assert [(column.data_set, column.metric) for column in columns] == [("x", main), ("y", main)]


def compared() -> Results:
    """With a comparison on one set, one of a mean and one without interval."""
    results = full_results()
    key = (("a", "b"), "simple", "paper")
    results.comparisons.extend(
        [
            Comparison(*key, "digits", "in", "accuracy", 0.1, 1 / 3, 0.2, 0.25, 360),
            Comparison(*key, None, "out", "loss", 3.0, 2.0, -1.5, -0.5, 1000, data_sets=3),
            Comparison(*key, "svhn", "out", "loss", math.nan, 2.0, None, None, 5),
        ]
    )
    return results


def test_comparisons_are_rows_of_their_own_at_the_end() -> None:
    """Rows that were there before are as they were; those of comparisons have four fields more."""
    results = compared()
    read, before = json.loads(results.to_json(), parse_constant=pytest.fail), json.loads(full_results().to_json())
    assert read[: len(before)] == before
    first, mean, broken = read[len(before) :]
    assert first == {
        "models": ["a", "b"], "method": "simple", "matching": "paper", "data_set": "digits", "domain": "in",
        "metric": "accuracy_change", "value": 1 / 3 - 0.1, "seconds": None,
        "lower": 0.2, "upper": 0.25, "examples": 360, "draws": 1000,
    }  # fmt: skip
    assert (mean["data_set"], mean["domain"], mean["metric"], mean["value"]) == (None, "out", "loss_change", -1.0)
    assert (broken["value"], broken["lower"], broken["upper"], broken["examples"]) == (None, None, None, 5)


def test_comparisons_are_lines_of_the_csv() -> None:
    """In columns behind the others, which are empty for scores."""
    lines = list(csv.DictReader(compared().to_csv().splitlines()))
    before = list(csv.DictReader(full_results().to_csv().splitlines()))
    assert lines[: len(before)] == before
    assert {line["lower"] for line in before} == {""}
    first, _, broken = lines[len(before) :]
    assert [float(first[name]) for name in ("value", "lower", "upper", "examples", "draws")] == pytest.approx(
        [1 / 3 - 0.1, 0.2, 0.25, 360, 1000]
    )
    assert (broken["lower"], broken["metric"]) == ("", "loss_change")


def test_short_and_as_a_table() -> None:
    """A line in a terminal, a row for each end model and merge in a notebook."""
    rows = [
        Row(("a",), "end model", "-", "digits", "in", "accuracy", 0.9),
        Row(("a", "b"), "simple", "none", "digits", "in", "accuracy", 0.25),
    ]
    found = Results("Merging a <and> b", ("a", "b"), rows)
    assert repr(found) == "Results(Merging a <and> b: 2 models, 2 scores, 0 lines, 0 distances)"
    page = found._repr_html_()
    assert page.count("<tr>") == 3
    assert "a &lt;and&gt; b" in page
    assert "<td>25.0</td>" in page


def test_a_best_merge_is_one_that_is_shown_to_be() -> None:
    """Not one of several, and not by digits that nobody sees."""
    rows = [
        Row(("a", "b"), "simple", matching, "digits", "in", "accuracy", value)
        for matching, value in (("none", 0.5), ("paper", 0.50001), ("weights", 0.4))
    ]
    assert Results("", ("a", "b"), rows).table().best(0) == frozenset()
    won = [*rows, Row(("a", "b"), "simple", "learned", "digits", "in", "accuracy", 0.9)]
    table = Results("", ("a", "b"), won).table()
    assert [table.entries[index].matching for index in table.best(0)] == ["learned"]
