"""The verdict on grids, lines and distances: what is counted, described, or told as it moved."""

import math

import pytest

from fusionlab.evaluation.comparison import GroupComparison
from fusionlab.evaluation.distances import Distance
from fusionlab.evaluation.results import UNMATCHED, Curve, Results
from fusionlab.evaluation.verdict import verdict
from tests.evaluation.examples import NAMES, judged
from tests.evaluation.merges import PAPER, PLAIN, WEIGHTS


def test_many_comparisons_are_counted() -> None:
    """And a reader is warned that one in twenty is chance."""
    scores = {PLAIN: 0.5} | {("simple", f"m{index}"): 0.5 + 0.1 * (index % 2) for index in range(7)}
    text = str(verdict(judged(scores)))
    assert "Of 7 pairs of a method and a matching, matching helps in 3; it makes no difference that the" in text
    assert "show in 4." in text
    assert "one in twenty still seems to help or cost" in text
    assert "one in twenty" not in str(verdict(judged({PLAIN: 0.5, PAPER: 0.6})))


def pair_of_curves(before: float, after: float, kept: tuple[str, str] | None = None) -> Results:
    heights = {UNMATCHED: before, "paper": after, "weights": 0.0}
    curves = [
        Curve("two", "one", matching, "digits", "in", (0, 0.5, 1), (1.0, 1.0 + height, 1.0), (0.9, 0.2, 0.8))
        for matching, height in heights.items()
    ]
    return Results("t", NAMES, curves=curves, kept=kept)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (2.72, 2.92, "rises from 2.720 to 2.920 with `paper`"),
        (2.92, 2.72, "falls from 2.920 to 2.720 with `paper`"),
        (2.7202, 2.7198, "stays at 2.720 with `paper`"),
        (2.7198, 2.7202, "stays at 2.720 with `paper`"),
        (2.7204, 2.7206, "rises from 2.720 to 2.721 with `paper`"),
        (math.nan, 2.72, "is not a number unmatched and 2.720 with `paper`"),
        (2.72, math.inf, "is 2.720 unmatched and infinite with `paper`"),
    ],
)
def test_barriers_move_by_the_digits_shown(before: float, after: float, words: str) -> None:
    """Of the matching that is kept or else comes first, whichever is lowest."""
    found = verdict(pair_of_curves(before, after))
    assert f"The loss barrier between `one` and `two` on digits {words}." in str(found)
    assert found.headline == "No merge was scored by itself; the line between the models was."
    assert "to 0.000 with `weights`" in str(verdict(pair_of_curves(2.7, 2.8, kept=WEIGHTS)))


@pytest.mark.parametrize("count", [1, 3, 4])
def test_distances_of_up_to_three_pairs_are_told(count: int) -> None:
    """One sentence for each; more are for the table."""
    distances = [Distance(f"m{index}", "a", "paper", "ffn", 0, 4.0, 3.0) for index in range(count)]
    told = str(verdict(Results("t", ("a",), distances=distances)))
    assert told.count("With `paper` the distance from") == (count if count <= 3 else 0)
    assert ("Closer weights alone do not tell" in told) == (count <= 3)


def test_a_distance_that_grows_is_explained() -> None:
    """Learned matching moves models apart where the loss falls; once for all pairs, and no weights "come closest"."""
    distances = [Distance(name, "a", "learned", "ffn", 0, 4.0, 5.0) for name in "bc"]
    distances += [Distance(name, "a", "paper", "ffn", 0, 4.0, 4.5) for name in "bc"]
    told = str(verdict(Results("t", ("a", "b", "c"), distances=distances)))
    assert told.count("looks at outputs, not at the distance, which may grow") == 1
    assert "With `paper` the distance from `b` to `a`" in told.replace("`paper`:", "`paper`")
    closer = [Distance("b", "a", "paper", "ffn", 0, 4.0, 3.0)]
    assert "may grow" not in str(verdict(Results("t", ("a", "b"), distances=closer)))


def over_groups(ends: tuple[float, float] | None, clusters: int, **changes: object) -> GroupComparison:
    lower, upper = ends or (None, None)
    return GroupComparison(
        "simple", "paper", "in", "accuracy", 0.3, 0.5, lower, upper, 0.1, 0.3, 12, clusters, **changes
    )  # type: ignore[arg-type]


def test_a_grid_is_judged_over_its_groups() -> None:
    """By the interval over groups that share no end model, where there are enough of them."""
    results = judged({PLAIN: 0.5, PAPER: 0.4})
    many = Results("t", NAMES, results.rows, overall=[over_groups((0.15, 0.25), 8)])
    assert verdict(many).headline == (
        "Matching helps: plain averaging goes from 30.0 % to 50.0 % accuracy in domain, +20.0 points (95 % interval "
        "+15.0 to +25.0 points, 8 independent groups)."
    )


def test_a_small_grid_is_described() -> None:
    """Nothing is claimed, and no two numbers are called an interval."""
    found = verdict(Results("t", NAMES, overall=[over_groups(None, 2)]))
    assert found.headline == (
        "Whether matching helps is open: plain averaging goes from 30.0 % to 50.0 % accuracy in domain (12 differences "
        "from +10.0 to +30.0 points, which only describe these groups: they fall into 2 clusters without a common end "
        "model, and an interval needs 6)."
    )
    assert "95 %" not in str(found)


def test_what_diverged_in_a_grid_is_named() -> None:
    """With group and seed."""
    found = verdict(Results("t", NAMES, overall=[over_groups(None, 2, diverged=("a + b, seed 0: loss is infinite",))]))
    assert "Left out in domain, as they diverge: a + b, seed 0: loss is infinite." in str(found)
