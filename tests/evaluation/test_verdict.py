"""The verdict is what the intervals say: one method against itself, failures by name, the digits that are shown."""

import math

import pytest

from fusionlab.evaluation.comparison import Comparison, Level
from fusionlab.evaluation.distances import Distance
from fusionlab.evaluation.results import UNMATCHED, Results, Row
from fusionlab.evaluation.verdict import verdict
from tests.evaluation.examples import NAMES, judged
from tests.evaluation.merges import PAPER, PLAIN, WEIGHTS


def scored(metric: str, unmatched: float, matched: float, interval: tuple[float, float] | None) -> Results:
    """One merge, unmatched and matched, on one data set, with this interval of the difference."""
    rows = [
        Row(NAMES, "simple", matching, "d", "in", metric, value)
        for matching, value in ((UNMATCHED, unmatched), ("paper", matched))
    ]
    lower, upper = interval or (None, None)
    one = Comparison(NAMES, "simple", "paper", "d", "in", metric, unmatched, matched, lower, upper, 360)
    return Results("t", NAMES, rows, comparisons=[one])


def test_it_helps_where_the_interval_is_above_0() -> None:
    """With numbers, interval, how many examples, and the level of the end models."""
    found = verdict(judged({PLAIN: 0.3, PAPER: 0.5}))
    assert found.headline.startswith(
        "Matching helps: plain averaging goes from 30.0 % to 50.0 % accuracy on digits (in\N{NO-BREAK SPACE}domain), "
        "+20.0 points (95 % interval +1"
    )
    assert found.headline.endswith(" points, 400 examples); the best end model has 95.5 %.")
    assert "the end models have 95.5 and 95.0 %" in found.paragraphs[0]
    assert "45.5 points worse than the best end model" in found.paragraphs[0]


def test_it_costs_where_the_interval_is_below_0() -> None:
    """And the best merge is the unmatched one."""
    found = verdict(judged({PLAIN: 0.5, PAPER: 0.3}))
    assert found.headline.startswith("Matching costs: plain averaging goes from 50.0 % to 30.0 % accuracy")
    assert "\N{MINUS SIGN}20.0 points" in found.headline
    assert "Best merge: plain averaging unmatched, 50.0 %" in found.paragraphs[0]


def test_no_difference_says_how_large_one_could_be() -> None:
    """Two examples of 500 more are rightly answered: within chance, which reaches from none to about five."""
    found = verdict(judged({PLAIN: 0.5, PAPER: 0.504}, count=500))
    assert found.headline == (
        "Matching makes no difference that 500 examples show: plain averaging has 50.0 % accuracy without and 50.4 % "
        "with it on digits (in\N{NO-BREAK SPACE}domain); the 95 % interval of the difference, 0.0 to +1.0 points, "
        "still allows a gain of up to 1.0 point."
    )


@pytest.mark.parametrize(
    ("metric", "interval", "words"),
    [
        ("accuracy", (-0.02, 0.03), "a gain of up to 3.0 points and a loss of up to 2.0 points"),
        ("loss", (-0.02, 0.03), "a gain of up to 0.020 and a loss of up to 0.030"),
        ("accuracy", (-0.02, 0.0), "a loss of up to 2.0 points"),
        ("accuracy", (-0.0001, 0.0001), "0.0 to 0.0 points, allows none that would show"),
    ],
)
def test_both_sides_of_an_interval_around_0(metric: str, interval: tuple[float, float], words: str) -> None:
    """A gain is a lower loss."""
    assert words in verdict(scored(metric, 0.5, 0.5, interval)).headline


@pytest.mark.parametrize(
    ("metric", "values", "interval", "effect"),
    [
        ("matthews", (0.596, 0.604), (0.001, 0.016), "Matching helps"),
        ("matthews", (0.596, 0.604), (0.0004, 0.016), "Matching makes no difference"),
        ("matthews", (0.604, 0.596), (-0.016, -0.001), "Matching costs"),
        ("loss", (0.596, 0.604), (0.001, 0.016), "Matching costs"),
        ("loss", (0.604, 0.596), (-0.016, -0.001), "Matching helps"),
        ("accuracy", (0.5004, 0.5006), (0.0001, 0.0003), "Matching makes no difference"),
        ("accuracy", (0.5000, 0.5020), (0.0006, 0.0030), "Matching helps"),
        ("perplexity", (153.2, 153.0), (-0.3, -0.04), "Matching makes no difference"),
        ("perplexity", (153.2, 152.0), (-1.3, -0.06), "Matching helps"),
        ("perplexity", (53.2, 53.0), (-0.3, -0.04), "Matching helps"),
    ],
)
def test_the_digits_are_those_shown(
    metric: str, values: tuple[float, float], interval: tuple[float, float], effect: str
) -> None:
    """An end of the interval that is shown as 0 is 0; three digits of a correlation count where three are shown."""
    assert verdict(scored(metric, *values, interval)).headline.startswith(effect)


def test_without_an_interval_nothing_is_claimed() -> None:
    """Too few examples, or none kept."""
    few = verdict(judged({PLAIN: 0.2, PAPER: 0.8}, count=5)).headline
    assert few.startswith("Whether matching helps is open: plain averaging goes from 20.0 % to 80.0 % accuracy")
    assert "(5 examples, for which there is no interval)" in few
    bare = judged({PLAIN: 0.2, PAPER: 0.8})
    none = verdict(Results("t", NAMES, bare.rows)).headline
    assert none.startswith("Whether matching helps is open")
    assert "(no interval was measured)" in none


def test_one_method_is_never_compared_with_another() -> None:
    """Matched RegMean is better than unmatched Fisher, while what is kept lost: matching costs, methods disagree."""
    scores = {
        PLAIN: 0.6, ("fisher", UNMATCHED): 0.71, ("regmean", UNMATCHED): 0.6,
        PAPER: 0.5, ("fisher", "paper"): 0.62, ("regmean", "paper"): 0.712,
    }  # fmt: skip
    found = verdict(judged(scores))
    assert found.headline.startswith("Matching costs: plain averaging goes from 60.0 % to 50.0 %")
    assert found.headline.endswith(" The methods disagree: it helps with `regmean`.")
    assert "`fisher` matched by `paper` has 62.0 %: matching costs, \N{MINUS SIGN}9.0 points" in found.paragraphs[0]
    kept = verdict(judged(scores, kept=("regmean", "paper")))
    assert kept.headline.startswith("Matching helps: `regmean` goes from 60.0 % to 71.2 %")
    assert kept.headline.endswith(" The methods disagree: it costs with plain averaging and `fisher`.")


def test_the_headline_is_of_the_matching_that_is_kept() -> None:
    """Each other one has its own sentence."""
    found = verdict(judged({PLAIN: 0.3, PAPER: 0.3, WEIGHTS: 0.8}, kept=WEIGHTS))
    assert found.headline.startswith("Matching by `weights` helps: plain averaging goes from 30.0 % to 80.0 %")
    assert "Matched by `paper` the merge has 30.0 %: matching makes no difference" in found.paragraphs[0]
    assert "Matched by `weights` the merge" not in found.paragraphs[0], "the headline has said it"
    assert "expect slightly less on new data" in found.paragraphs[0]
    first = verdict(judged({PLAIN: 0.3, PAPER: 0.3, WEIGHTS: 0.8}))
    assert first.headline.startswith("Matching by `paper` makes no difference")


def test_a_merge_that_diverges_is_named() -> None:
    """Though its accuracy is a number: the first class is the largest of logits that are none."""
    unmatched = verdict(judged({PLAIN: 0.3, PAPER: 0.6}, broken=[PLAIN]))
    assert unmatched.headline == (
        "Matching has nothing to be compared with: unmatched, plain averaging diverges on "
        "digits (in\N{NO-BREAK SPACE}domain), its loss is not a number; matched it has 60.0 % accuracy."
    )
    assert "Plain averaging unmatched diverges (loss is not a number)." in unmatched.paragraphs[0]
    assert "Best merge: plain averaging matched by `paper`" in unmatched.paragraphs[0]
    matched = verdict(judged({PLAIN: 0.3, PAPER: 0.6}, broken=[PAPER]))
    assert matched.headline.startswith("Matching breaks plain averaging: it diverges on digits")
    assert "Best merge: plain averaging unmatched" in matched.paragraphs[0]
    both = verdict(judged({PLAIN: 0.3, PAPER: 0.6}, broken=[PLAIN, PAPER]))
    assert both.headline.startswith("Matching cannot be judged: plain averaging diverges with and without it")
    assert "Best merge" not in both.paragraphs[0]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_score_that_is_not_finite_is_named_where_there_is_no_loss(value: float) -> None:
    """The same sentence, with the metric."""
    found = verdict(scored("accuracy", value, 0.6, None))
    assert "unmatched, plain averaging diverges on d" in found.headline
    assert f"its accuracy is {'not a number' if math.isnan(value) else 'infinite'}" in found.headline


def test_one_set_of_a_mean_that_diverges_is_named() -> None:
    """With the data set."""
    results = judged({PLAIN: 0.3, PAPER: 0.6}, sets=[(name, "out") for name in "abc"])
    rows = [
        Row(r.models, r.method, r.matching, r.data_set, r.domain, r.metric, math.nan)
        if (r.data_set, r.metric, r.matching) == ("b", "loss", "paper")
        else r
        for r in results.rows
    ]
    found = verdict(Results("t", NAMES, rows, comparisons=results.comparisons))
    assert "it diverges on average over the 3 data sets out of domain, its loss is not a number on b" in found.headline


def test_the_mean_over_data_sets_has_its_own_interval() -> None:
    """Three sets are told as their mean, with all their examples."""
    found = verdict(judged({PLAIN: 0.25, PAPER: 0.5}, sets=[(name, "out") for name in "abc"]))
    assert found.headline.startswith(
        "Matching helps: plain averaging goes from 25.0 % to 50.0 % accuracy on average over the 3 data sets out of "
        "domain, +25.0 points (95 % interval +2"
    )
    assert "1,200 examples" in found.headline


def test_places_are_told_apart() -> None:
    """In domain it helps, out of domain it costs."""
    results = judged({PLAIN: 0.5, PAPER: 0.6})
    other = judged({PLAIN: 0.5, PAPER: 0.4}, sets=[("svhn", "out")])
    both = Results(
        "t", NAMES, results.rows + other.rows, comparisons=results.comparisons + other.comparisons
    )  # fmt: skip
    assert verdict(both).headline == (
        "Matching helps on digits (in\N{NO-BREAK SPACE}domain); "
        "it costs on svhn (out\N{NO-BREAK SPACE}of\N{NO-BREAK SPACE}domain)."
    )


def test_chance_is_called_so() -> None:
    """A score whose interval holds what the largest class gives; clearly above it nothing is said."""
    low = verdict(judged({PLAIN: 0.11, PAPER: 0.12}))
    assert "with and without it the merge is at chance level (10.0 %)" in low.headline
    assert "Plain averaging unmatched and plain averaging matched by `paper` are at chance level" in str(low)
    rescued = verdict(judged({PLAIN: 0.11, PAPER: 0.5})).headline
    assert "; unmatched it is at chance level (10.0 %);" in rescued
    below = verdict(judged({PLAIN: 0.5, PAPER: 0.02})).headline
    assert "; matched it is below chance level (10.0 %);" in below
    assert "chance" not in str(verdict(judged({PLAIN: 0.3, PAPER: 0.5})))
    assert "The end model `two` is at chance level (10.0 %)." in str(
        verdict(judged({PLAIN: 0.3, PAPER: 0.5}, ends=(0.9, 0.1)))
    )


def level(metric: str, ends: tuple[float, float] | None, chance: float, is_constant: bool = False) -> Level:
    lower, upper = ends or (None, None)
    return Level(NAMES, "simple", "paper", "d", "in", metric, lower, upper, chance, is_constant)


@pytest.mark.parametrize(
    ("metric", "value", "found", "words"),
    [
        ("f1", 0.0, level("f1", (0, 0), 0), "predicts nothing (F1 0.0 %)"),
        ("f1", 0.1, level("f1", (0.05, 0.2), 0), ""),
        ("matthews", 0.01, level("matthews", (-0.1, 0.1), 0), "is at chance level (0.000)"),
        ("matthews", 0.0, level("matthews", None, 0), "is at chance level (0.000)"),
        ("matthews", 0.3, level("matthews", (0.2, 0.4), 0), ""),
        ("matthews", 0.0, level("matthews", (0, 0), 0, True), "gives every example the same class, at chance level"),
        ("macro_f1", 0.2, level("macro_f1", (0.1, 0.3), 0.25), "is at chance level (25.0 %)"),
        ("accuracy", 0.7, level("accuracy", (0.6, 0.8), 0.5, True), "gives every example the same class"),
        ("pearson", math.nan, None, "has no pearson: it is not defined where all outputs, or all labels, are alike"),
        (
            "perplexity",
            60.0,
            level("perplexity", (55, 65), 50),
            "is no better than a uniform guess (perplexity 50.000)",
        ),
        ("perplexity", 20.0, level("perplexity", (15, 25), 50), ""),
    ],
)
def test_models_that_predict_nothing_are_called_so(metric: str, value: float, found: Level | None, words: str) -> None:
    """By what an answer that ignores the input scores."""
    results = scored(metric, 0.9, value, None if math.isnan(value) else (-0.9, -0.3))
    results.rows.extend(Row(NAMES, "simple", m, "d", "in", "loss", 1.0) for m in (UNMATCHED, "paper"))
    results.levels.extend([found] if found is not None else [])
    text = str(verdict(results))
    if words:
        assert words in text
    else:
        assert not any(word in text for word in ("chance", "nothing", "guess", "same class"))


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        (("simple",), "plain averaging has 30.0 % accuracy unmatched"),
        (("simple", "fisher"), "plain averaging has 30.0 % accuracy and `fisher` has 40.0 % accuracy unmatched"),
        (("simple", "fisher", "ties"), ", `fisher` has 40.0 % accuracy and `ties` has 50.0 % accuracy unmatched"),
        (("simple", "fisher", "ties", "dare"), None),
    ],
)
def test_up_to_three_unmatched_merges_are_told_one_by_one(methods: tuple[str, ...], words: str | None) -> None:
    """With their scores, before the end models; more are for the table."""
    unmatched = {(method, UNMATCHED): 0.3 + 0.1 * index for index, method in enumerate(methods)}
    told = verdict(judged({**unmatched, PAPER: 0.8})).paragraphs[0]
    assert ("unmatched; the end models have" in told) == (words is not None)
    assert (words or "On digits (in\N{NO-BREAK SPACE}domain) the end models have") in told


def test_what_was_not_measured_is_not_judged() -> None:
    """Only end models, only distances, nothing."""
    assert "Only end models were evaluated" in verdict(judged({})).headline
    assert verdict(Results("t", ())).headline == "Nothing was measured."
    far = Results("t", NAMES, distances=[Distance("two", "one", "paper", "ffn", 0, 4.0, 3.996)])
    assert "no merge was evaluated" in verdict(far).headline
    assert "\N{MINUS SIGN}0.10 %" in str(verdict(far))
