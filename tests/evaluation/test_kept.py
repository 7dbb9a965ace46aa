"""What a merge keeps of each task."""

import math
from dataclasses import replace

import pytest

from fusionlab.evaluation.kept import kept_note, kept_of_tasks
from fusionlab.evaluation.results import END_MODEL, Results, Row

NAMES = ("a", "b")


def scored(merge: dict[str, float], metric: str = "accuracy", kept: tuple[str, str] = ("ties", "none")) -> Results:
    """Two end models, of which each knows a task, and a merge with these scores beside another one."""
    ends = {"first": {"a": 0.9, "b": 0.5}, "second": {"a": 0.4, "b": 0.8}}
    rows = [
        Row((name,), END_MODEL, "-", data, "in", metric, value)
        for data, values in ends.items()
        for name, value in values.items()
    ]
    rows += [Row(NAMES, "ties", "none", data, "in", metric, value) for data, value in merge.items()]
    rows += [Row(NAMES, "simple", "none", data, "in", metric, 0.1) for data in merge]
    rows += [Row((name,), END_MODEL, "-", "elsewhere", "out", metric, 0.7) for name in NAMES]
    return Results("t", NAMES, rows, kept=kept)


def test_shares_are_of_the_model_that_knows_the_task() -> None:
    """Of the merge that is kept alone, in domain alone."""
    first, second = kept_of_tasks(scored({"first": 0.81, "second": 0.6}))
    assert (first.data_set, first.own, first.merge) == ("first", 0.9, 0.81)
    assert first.share == pytest.approx(0.9)
    assert second.share == pytest.approx(0.75)


def test_the_sentence_names_every_task_and_the_worst() -> None:
    """With both scores, the mean share, and where least is kept."""
    assert kept_note(scored({"first": 0.81, "second": 0.6})) == (
        "Of what the best end model has on each task, the merge that is kept, `ties` unmatched, keeps 90.0 % on first "
        "(accuracy 81.0 of 90.0 %) and 75.0 % on second (accuracy 60.0 of 80.0 %): 82.5 % on average, least on second."
    )


def test_a_merge_alone_is_not_told_from_others() -> None:
    results = scored({"first": 0.81, "second": 0.6})
    alone = replace(results, rows=[row for row in results.rows if row.method != "simple"])
    assert "on each task, the merge keeps 90.0 % on first" in kept_note(alone)


def test_nothing_is_said_without_shares() -> None:
    """Of one task, of a loss, of a merge that diverged or was not measured."""
    assert kept_note(scored({"first": 0.81})) == ""
    assert kept_note(scored({"first": 0.81, "second": 0.6}, "loss")) == ""
    assert kept_note(scored({"first": 0.81, "second": math.nan})) == ""
    assert kept_note(scored({"first": 0.81, "second": 0.6}, kept=("tsv_m", "none"))) == ""
