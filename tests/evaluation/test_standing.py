"""Nothing matched: the headline holds the merge that is kept against the end models, with intervals."""

from dataclasses import replace

import pytest

from fusionlab.evaluation.results import Results
from fusionlab.evaluation.verdict import verdict
from tests.evaluation.examples import NAMES, judged
from tests.evaluation.merges import PAPER, PLAIN


@pytest.mark.parametrize("merge", [PLAIN, PAPER])
@pytest.mark.parametrize(
    ("share", "count", "opening", "words"),
    [
        (0.5, 400, "The merge is worse than the best end model: ", "`one`, 95.5 %, \N{MINUS SIGN}45.5 points (95 % "),
        (0.99, 400, "The merge is better than the best end model: ", "`one`, 95.5 %, +3.5 points (95 % interval +"),
        (0.96, 400, "The merge does not differ from the best end model as far as 400 ", "allows a gain of up to 1"),
        (0.5, 5, "Whether the merge differs from the best end model is open: ", "for which there is no interval"),
        (0.1, 400, "The merge is worse than the best end model: ", "; the merge is at chance level (10.0 %)."),
    ],
)
def test_the_merge_is_held_against_end_models(
    merge: tuple[str, str], share: float, count: int, opening: str, words: str
) -> None:
    headline = verdict(judged({merge: share}, count=count)).headline
    assert headline.startswith(opening)
    assert words in headline
    assert "; the end models' mean is " in headline
    if count == 400:
        mean = headline.partition("; the end models' mean is 95.2 %, ")[2]
        assert "points (95 % interval " in mean


def test_a_difference_is_paired_by_example() -> None:
    """Where all models fail on the same examples the interval is narrower than that of either score."""
    results = judged({PLAIN: 0.5}, ends=(0.52, 0.51))
    level = next(one for one in results.levels if one.method == "simple" and one.metric == "accuracy")
    found = {one.reference: one for one in level.references}
    assert set(found) == {("one",), ("two",), NAMES}
    assert found["one",].difference == pytest.approx(-0.02)
    assert found[NAMES].unmatched == pytest.approx(0.515)
    widths = [(one.upper or 0) - (one.lower or 0) for one in (level, found["one",])]
    assert widths[1] < widths[0] / 2


def test_several_places() -> None:
    """First what holds where, then the numbers of each place; of many only how many there are."""
    sets = [("a", "in"), ("b", "out")]
    found = verdict(judged({PLAIN: 0.9}, sets=sets))
    assert found.headline.startswith("The merge is worse than the best end model on a ")
    for paragraph in found.paragraphs[:2]:
        assert paragraph.startswith("Plain averaging unmatched has 90.0 % accuracy on ")


TIES = ("ties", "none")


def test_the_merge_that_is_kept_is_spoken_of() -> None:
    """Though another one is better; that one is named as the best."""
    found = verdict(judged({TIES: 0.5, PLAIN: 0.99}, kept=TIES))
    assert found.headline.startswith(
        "The merge that is kept is worse than the best end model: `ties` unmatched has 50.0 % accuracy on digits"
    )
    assert "Best merge: plain averaging unmatched, 99.0 %, 3.5 points better than the best end model." in str(found)


def test_the_merge_that_is_kept_in_several_places() -> None:
    sets = [("a", "in"), ("b", "out")]
    found = verdict(judged({TIES: 0.5, PLAIN: 0.99}, sets=sets, kept=TIES))
    assert found.headline.startswith("The merge that is kept, `ties` unmatched, is worse than the best end model on a ")
    for paragraph in found.paragraphs[:2]:
        assert paragraph.startswith("`ties` unmatched has 50.0 % accuracy on ")


def test_the_best_merge_is_named_where_none_is_kept() -> None:
    """As in a grid; where it is another one from place to place, that is said."""
    scores = {TIES: 0.5, PLAIN: 0.99}
    assert verdict(judged(scores)).headline.startswith("The best merge is better than the best end model: plain averag")
    both = judged(scores, sets=[("a", "in"), ("b", "out")])
    headline = verdict(both).headline
    assert headline.startswith("The best merge, plain averaging unmatched, is better than the best end model on a ")
    swapped = {"ties": "simple", "simple": "ties"}
    rows = [
        replace(row, method=swapped.get(row.method, row.method)) if row.data_set == "b" else row for row in both.rows
    ]
    headline = verdict(replace(both, rows=rows)).headline
    assert headline.startswith("The best merge of each measurement is better than the best end model on a ")


def test_a_merge_that_is_kept_and_diverges() -> None:
    found = verdict(judged({TIES: 0.5, PLAIN: 0.99}, kept=TIES, broken=[TIES]))
    assert found.headline.startswith("The merge that is kept, `ties` unmatched, diverges on digits")
    assert found.headline.endswith(": loss is not a number.")
    assert "Best merge: plain averaging unmatched" in str(found)


def test_a_difference_within_chance_is_not_told_as_one() -> None:
    """The best merge is half a point above the best end model, which 400 examples do not show."""
    found = str(verdict(judged({PLAIN: 0.96})))
    assert (
        "Best merge: plain averaging unmatched, 96.0 %; the examples do not show that it differs from the best end "
        "model, +0.5 points (95 % interval "
    ) in found
    assert "points better than" not in found


def test_what_has_no_score_is_said() -> None:
    assert verdict(judged({PLAIN: 0.9}, broken=[PLAIN])).headline.startswith("No merge has a score on digits")
    alone = Results("t", NAMES, [row for row in judged({PLAIN: 0.9}).rows if len(row.models) == 2])
    assert "no end model has a score to compare it with" in verdict(alone).headline
