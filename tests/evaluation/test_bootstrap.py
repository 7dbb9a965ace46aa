"""Intervals: they cover what they should, are paired, the same for the same seed, and absent where they would lie."""

import math

import numpy as np
import pytest
import torch

from fusionlab.evaluation import bootstrap
from fusionlab.evaluation.bootstrap import FEWEST, clusters_of, interval, over_clusters, resampled, resamples
from fusionlab.evaluation.contributions import Answers, Record


def answers(values: np.ndarray, metric: str = "accuracy") -> Answers:
    """A model with these numbers for its examples, whose metric is their mean."""
    record = Record()
    found = torch.from_numpy(values)
    record.add(metric, "mean", found, torch.ones_like(found))
    return record.answers(lambda actual: {})


def test_the_interval_is_the_normal_one_of_a_mean() -> None:
    """Of 400 numbers: the mean plus and minus 1.96 standard errors, within what 1,000 draws leave open."""
    values = np.random.default_rng(0).normal(size=400)
    (found,) = resampled([answers(values)])
    ends = interval(found["accuracy"], 400)
    assert ends is not None
    error = values.std() / 20
    assert ends == pytest.approx((values.mean() - 1.96 * error, values.mean() + 1.96 * error), abs=0.15 * error)


def test_it_holds_the_truth_about_95_times_in_a_hundred() -> None:
    """Over 300 samples of 60 numbers; 90 % or 99 % intervals would miss 30 or 3."""
    generator = np.random.default_rng(1)
    misses = 0
    for index in range(300):
        (found,) = resampled([answers(generator.normal(size=60))], seed=index)
        ends = interval(found["accuracy"], 60)
        assert ends is not None
        misses += not ends[0] <= 0 <= ends[1]
    assert 8 <= misses <= 26


def test_pairs_are_drawn_together() -> None:
    """Two models that differ by 0.01 on each example differ by 0.01 on each resample, however much examples differ."""
    values = np.random.default_rng(2).normal(size=50)
    first, second = resampled([answers(values), answers(values + 0.01)])
    assert second["accuracy"] - first["accuracy"] == pytest.approx(np.full(1000, 0.01), abs=1e-6)
    assert first["accuracy"].std() > 0.05


def test_the_same_seed_draws_the_same_and_other_sets_independently() -> None:
    """Whatever else is drawn; each draw has as many examples as there are."""
    first, again = (np.concatenate(list(resamples(30, name="digits"))) for _ in range(2))
    assert first.shape == (1000, 30)
    assert (first == again).all()
    assert (first.sum(1) == 30).all()
    for other in (
        np.concatenate(list(resamples(30, name="svhn"))), np.concatenate(list(resamples(30, seed=1, name="digits"))),
    ):  # fmt: skip
        assert abs(np.corrcoef(first.ravel(), other.ravel())[0, 1]) < 0.05


def test_pieces_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few weights in memory at a time, the same kind of draws."""
    monkeypatch.setattr(bootstrap, "_CHUNK", 64)
    pieces = list(resamples(30, draws=11))
    assert [len(piece) for piece in pieces] == [2, 2, 2, 2, 2, 1]
    assert [len(piece) for piece in resamples(65, draws=3)] == [1, 1, 1]
    values = np.random.default_rng(3).normal(size=30)
    (found,) = resampled([answers(values)], draws=11)
    assert found["accuracy"] == pytest.approx(np.concatenate(pieces) @ values / 30, abs=1e-6)


def test_too_few_and_undefined() -> None:
    """Below six there is no interval; a few resamples may be undefined, many may not."""
    draws = np.arange(1000.0)
    assert interval(draws, FEWEST - 1) is None
    assert interval(draws, FEWEST) == pytest.approx((24.975, 974.025))
    draws[:40] = math.nan
    assert interval(draws, 50) == pytest.approx((40 + 0.025 * 959, 40 + 0.975 * 959))
    draws[:60] = math.inf
    assert interval(draws, 50) is None


def test_examples_that_do_not_match_are_not_paired() -> None:
    """Another number of them is another test set."""
    with pytest.raises(ValueError, match=r"answers to \[3, 4\] examples cannot be paired"):
        resampled([answers(np.zeros(3)), answers(np.zeros(4))])


def test_groups_that_share_a_model_are_one_cluster() -> None:
    """Also through others."""
    assert clusters_of([("a", "b"), ("c", "d"), ("b", "e"), ("f", "g")]) == [0, 1, 0, 2]
    assert clusters_of([("a", "b"), ("c", "d"), ("b", "c")]) == [0, 0, 0]
    assert clusters_of([("a", "b"), ("c", "d"), ("c", "b")]) == [0, 0, 0]
    assert clusters_of([("a", "b"), ("a", "b")]) == [0, 0]


def test_clusters_are_drawn_whole() -> None:
    """Ten equal pairs in each of eight clusters say no more than eight numbers: the interval is theirs."""
    values = np.random.default_rng(5).normal(size=8)
    alone = over_clusters(values.tolist(), list(range(8)))
    tenfold = over_clusters(np.repeat(values, 10).tolist(), np.repeat(np.arange(8), 10).tolist())
    assert alone is not None
    assert tenfold == pytest.approx(alone)
    as_if_independent = over_clusters(np.repeat(values, 10).tolist(), list(range(80)))
    assert as_if_independent is not None
    assert as_if_independent[1] - as_if_independent[0] < 0.5 * (alone[1] - alone[0])


def test_unequal_clusters_count_by_their_groups() -> None:
    """The middle of the interval is near the mean over groups, not near the mean over clusters."""
    differences, clusters = [1.0] * 12 + [0.0] * 6, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, *range(6, 12)]
    ends = over_clusters(differences, clusters)
    assert ends is not None
    assert ends[0] < 12 / 18 < ends[1]
    wide = np.concatenate(list(resamples(12)))
    means = wide @ np.array([2.0] * 6 + [0.0] * 6) / (wide @ np.array([2.0] * 6 + [1.0] * 6))
    assert ends == pytest.approx(tuple(np.percentile(means, [2.5, 97.5])))


def test_fewer_than_six_clusters_have_no_interval() -> None:
    """Two pairs would give those two numbers and call them 95 %; ten pairs of five models are one cluster."""
    assert over_clusters([1.0, 2.0], [0, 1]) is None
    pairs = [(a, b) for a in "abcde" for b in "abcde" if a < b]
    assert over_clusters([1.0] * len(pairs), clusters_of(pairs)) is None
    assert over_clusters([1.0] * 6, list(range(6))) == (1, 1)
