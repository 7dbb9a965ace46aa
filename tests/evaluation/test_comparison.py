"""Comparisons: the same method matched and unmatched on the same examples, by data set and over those of a domain."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fusionlab.evaluation.comparison import Comparison, Domain, Level, Measured, compare
from fusionlab.evaluation.contributions import Answers, Record

MODELS = ("a", "b")


def answers(right: np.ndarray, chance: float = 0.1) -> Answers:
    """A model that answers these examples rightly, with a loss of 1 where it does not."""
    record = Record()
    found = torch.from_numpy(right.astype(np.float32))
    record.add("loss", "mean", 1 - found, torch.ones_like(found))
    record.add("accuracy", "mean", found, torch.ones_like(found))
    return record.answers(lambda actual: {"accuracy": chance})


def measured(method: str, matching: str, right: np.ndarray, name: str = "digits", domain: Domain = "in") -> Measured:
    return Measured(MODELS, method, matching, name, domain, answers(right))


def some(share: float, count: int = 200, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(count) < share


def find(comparisons: list[Comparison], **wanted: object) -> Comparison:
    (found,) = [c for c in comparisons if all(getattr(c, name) == value for name, value in wanted.items())]
    return found


def test_each_matched_merge_meets_the_unmatched_one_of_its_method() -> None:
    """Never another method's; end models and ensembles meet nobody."""
    given = {
        ("simple", "none"): some(0.3), ("fisher", "none"): some(0.7), ("simple", "paper"): some(0.5),
        ("fisher", "paper"): some(0.6), ("regmean", "paper"): some(0.9), ("end model", "-"): some(0.95),
    }  # fmt: skip
    comparisons, levels = compare(measured(*key, right) for key, right in given.items())
    assert [(c.method, c.matching, c.metric) for c in comparisons] == [
        (method, "paper", metric) for method in ("simple", "fisher") for metric in ("loss", "accuracy")
    ]
    for method in ("simple", "fisher"):
        found = find(comparisons, method=method, metric="accuracy")
        before, after = given[method, "none"].mean(), given[method, "paper"].mean()
        assert (found.unmatched, found.matched) == (pytest.approx(before), pytest.approx(after))
        assert found.difference == pytest.approx(after - before)
        assert (found.examples, found.draws, found.data_set, found.domain) == (200, 1000, "digits", "in")
        assert found.lower is not None
        assert found.upper is not None
        assert found.lower < found.difference < found.upper
    assert len(levels) == 2 * len(given)


def test_a_mean_over_sets_has_no_interval_where_one_is_tiny() -> None:
    """Two sets of 200 examples on which nothing changes, and one of a single one that does, or of six."""
    for count in (1, 6):
        sets = {"large": (some(0.5),) * 2, "other": (some(0.6),) * 2, "tiny": (np.zeros(count), np.ones(count))}
        given = [
            measured("simple", matching, right, name)
            for name, pair in sets.items()
            for matching, right in zip(("none", "paper"), pair, strict=True)
        ]
        comparisons, levels = compare(given)
        mean = find(comparisons, data_set=None, metric="accuracy")
        assert mean.difference == pytest.approx(1 / 3)
        assert (mean.lower is None) == (count == 1)
        assert all((one.lower is None) == (count == 1) for one in levels if one.data_set is None)


def test_pairs_make_the_interval_narrow() -> None:
    """A hundred and five examples right instead of a hundred, the hundred among them: as if only those five counted."""
    before = np.arange(400) < 100
    after = np.arange(400) < 105
    comparisons, _ = compare([measured("simple", "none", before), measured("simple", "paper", after)])
    found = find(comparisons, metric="accuracy")
    assert found.lower is not None
    # Poisson with mean 5: from 1 to 10 of 400.
    assert (found.lower, found.upper) == (pytest.approx(1 / 400, abs=1e-6), pytest.approx(10 / 400, abs=1 / 400))
    shuffled = np.random.default_rng(0).permutation(after)
    comparisons, _ = compare([measured("simple", "none", before), measured("simple", "paper", shuffled)])
    assert (find(comparisons, metric="accuracy").lower or 0) < 0, "other examples right: no pairs to gain from"


def test_levels_are_of_one_model_with_chance() -> None:
    """The interval of its own score; no chance where the metric has none."""
    _, levels = compare([measured("end model", "-", np.arange(100) < 50)])
    loss, accuracy = levels
    assert (loss.chance, accuracy.chance) == (None, 0.1)
    assert (accuracy.lower, accuracy.upper) == (pytest.approx(0.4, abs=0.02), pytest.approx(0.6, abs=0.02))
    assert loss == Level(MODELS, "end model", "-", "digits", "in", "loss", loss.lower, loss.upper, None)


@pytest.mark.parametrize("sets", [1, 2, 3])
def test_the_mean_over_data_sets(sets: int) -> None:
    """Told past two of a domain; its interval is that of independent sets, narrower by the root of their number."""
    found = []
    for index in range(sets):
        for matching, share in (("none", 0.3), ("paper", 0.5)):
            found.append(measured("simple", matching, some(share, seed=index), f"set {index}", "out"))
    found.append(measured("simple", "paper", some(0.5), "home", "in"))
    comparisons, levels = compare(found)
    means = [c for c in comparisons if c.data_set is None]
    assert len(means) == (2 if sets == 3 else 0)
    if sets == 3:
        mean = find(means, metric="accuracy")
        parts = [c for c in comparisons if c.data_set is not None and c.metric == "accuracy"]
        assert mean.difference == pytest.approx(np.mean([part.difference for part in parts]))
        assert (mean.examples, mean.data_sets, mean.domain) == (600, 3, "out")
        widths = [part.upper - part.lower for part in parts]  # type: ignore[operator]
        assert mean.upper - mean.lower == pytest.approx(np.mean(widths) / 3**0.5, rel=0.2)  # type: ignore[operator]
        level = next(one for one in levels if (one.data_set, one.metric, one.matching) == (None, "accuracy", "paper"))
        assert level.chance == pytest.approx(0.1)


def test_a_model_that_is_not_a_number_has_no_interval() -> None:
    """The pair stays in the list, with what is not a number."""
    broken = answers(some(0.5))
    loss = broken.contributions["loss"]
    values = np.array(loss.values)
    values[7, 0] = math.nan
    broken.contributions["loss"] = replace(loss, values=values)
    given = [measured("simple", "none", some(0.3)), replace(measured("simple", "paper", some(0.5)), answers=broken)]
    comparisons, levels = compare(given)
    found = find(comparisons, metric="loss")
    assert math.isnan(found.difference)
    assert (found.lower, found.upper) == (None, None)
    assert (levels[2].metric, levels[2].lower) == ("loss", None)
    assert find(comparisons, metric="accuracy").lower is not None


def test_few_examples_have_no_interval() -> None:
    """Five of them, whatever they say."""
    comparisons, _ = compare([measured("simple", "none", np.zeros(5)), measured("simple", "paper", np.ones(5))])
    assert [(c.difference, c.lower, c.examples) for c in comparisons] == [(-1, None, 5), (1, None, 5)]


def test_several_seeds_are_their_mean() -> None:
    """Each on the same resamples, so that the mean of two equal ones is as sure as one."""
    once = [measured("simple", "none", some(0.3)), measured("simple", "paper", some(0.5, seed=1))]
    again = [replace(part, seed=1) for part in once]
    (one, _), (two, _) = compare(once), compare(once + again)
    assert two == one
    other = [
        replace(measured("simple", m, some(share, seed=2)), seed=1) for m, share in (("none", 0.3), ("paper", 0.9))
    ]
    found = find(compare(once + other)[0], metric="accuracy")
    differences = [find(compare(part)[0], metric="accuracy").difference for part in (once, other)]
    assert found.difference == pytest.approx(np.mean(differences))
    assert len(set(differences)) == 2


def test_only_seeds_of_both_sides_are_paired() -> None:
    """A matched merge of a seed whose unmatched one failed says nothing about matching; it counts in its own level."""
    once = [measured("simple", "none", some(0.3)), measured("simple", "paper", some(0.5, seed=1))]
    lonely = replace(measured("simple", "paper", some(0.9, seed=2)), seed=1)
    comparisons, levels = compare([*once, lonely])
    assert comparisons == compare(once)[0]
    matched = next(one for one in levels if (one.matching, one.metric) == ("paper", "accuracy"))
    assert matched.lower is not None
    assert 0.6 < matched.lower < 0.7
