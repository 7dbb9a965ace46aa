"""Intervals from resampling: how far a number would move on other test examples of the same kind, or other models."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fusionlab.evaluation.contributions import Answers

DRAWS = 1000
LEVEL = 0.95
# Of five numbers that are above 0 half of the time, all are on one side of it in one case of 16, which is more than
# the 5 % that a 95 % interval may miss; of six in one of 32. With fewer no interval is called 95 %.
FEWEST = 6
# So many weights are held at a time: 32 MiB.
_CHUNK = 2**22
# More undefined resamples than this, and an interval over the rest would be of other samples.
_UNDEFINED = 0.05

Interval = tuple[float, float] | None
Draws = NDArray[np.float64]


def interval(draws: Draws, count: int) -> Interval:
    """The 95 % percentile interval (Efron and Tibshirani, "An introduction to the bootstrap", 1993, section 13.3).

    Args:
        draws: the number on each resample, shape ``(draws,)``.
        count: how many independent things were resampled.

    Returns:
        Lower and upper end; None where there are fewer than `FEWEST` things, or where the number is not defined on more
        than 5 % of the resamples.
    """
    known = draws[np.isfinite(draws)]
    if count < FEWEST or len(known) < (1 - _UNDEFINED) * len(draws):
        return None
    tail = 100 * (1 - LEVEL) / 2
    lower, upper = np.percentile(known, [tail, 100 - tail])
    return float(lower), float(upper)


def resamples(count: int, draws: int = DRAWS, seed: int = 0, name: str = "") -> Iterator[Draws]:
    """Counts of each example in each resample, in pieces that fit into memory.

    Args:
        count: of the examples, at least 1.
        draws: how many resamples, each of as many examples, drawn with replacement.
        seed: of the draws.
        name: of the test set; other sets are drawn independently, the same one always alike.

    Yields:
        Shape ``(some draws, count)``; all pieces together have `draws` rows.
    """
    digest = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    generator = np.random.default_rng([seed, digest])
    step = max(1, _CHUNK // count)
    for start in range(0, draws, step):
        rows = min(step, draws - start)
        places = generator.integers(0, count, size=(rows, count)) + count * np.arange(rows)[:, None]
        yield np.bincount(places.ravel(), minlength=rows * count).reshape(rows, count).astype(np.float64)


def resampled(answers: Sequence[Answers], draws: int = DRAWS, seed: int = 0, name: str = "") -> list[dict[str, Draws]]:
    """Every metric of several models on the same resamples of one test set.

    Args:
        answers: of each model, all on the same examples in the same order.
        draws: how many resamples.
        seed: of the draws.
        name: of the test set.

    Returns:
        For each model, by metric, shape ``(draws,)``.

    Raises:
        ValueError: models that were tested on different numbers of examples.
    """
    counts = {found.examples for answer in answers for found in answer.contributions.values()}
    if len(counts) > 1:
        raise ValueError(f"answers to {sorted(counts)} examples cannot be paired; expected the same examples")
    parts: list[dict[str, list[Draws]]] = [{metric: [] for metric in answer.contributions} for answer in answers]
    for count in counts:
        if not count:
            continue
        for weights in resamples(count, draws, seed, name):
            for answer, found in zip(answers, parts, strict=True):
                for metric, contributions in answer.contributions.items():
                    found[metric].append(contributions.scores(weights))
    return [
        {m: np.concatenate(pieces) if pieces else np.full(draws, math.nan) for m, pieces in found.items()}
        for found in parts
    ]


def over_clusters(differences: Sequence[float], clusters: Sequence[int], draws: int = DRAWS, seed: int = 0) -> Interval:
    """The 95 % interval of a mean over groups of models, resampled by clusters that share no model.

    Groups that share an end model rise and fall together, so they are drawn together: a cluster at a time, all of its
    groups with it (Cameron, Gelbach and Miller, "Bootstrap-based improvements for inference with clustered errors",
    2008).

    Args:
        differences: one for each group and seed.
        clusters: the number of the cluster that each belongs to, from 0.
        draws: how many resamples.
        seed: of the draws.

    Returns:
        Lower and upper end; None where there are fewer than `FEWEST` clusters.
    """
    place = np.asarray(clusters)
    count = int(place.max(initial=-1)) + 1
    if count < FEWEST:
        return None
    sums = np.bincount(place, np.asarray(differences, np.float64), minlength=count)
    sizes = np.bincount(place, minlength=count)
    weights = np.concatenate(list(resamples(count, draws, seed)))
    return interval(weights @ sums / (weights @ sizes), count)


def clusters_of(groups: Sequence[Sequence[str]]) -> list[int]:
    """Numbers the clusters of groups, so that groups of different clusters share no model, not even through others.

    Args:
        groups: names of the models of each.

    Returns:
        For each group the number of its cluster, from 0 in order of appearance.
    """
    home: dict[str, str] = {}

    def root(name: str) -> str:
        while home.setdefault(name, name) != name:
            name = home[name]
        return name

    for group in groups:
        for name in group:
            home[root(name)] = root(group[0])
    numbers: Mapping[str, int] = {
        name: index for index, name in enumerate(dict.fromkeys(root(group[0]) for group in groups))
    }
    return [numbers[root(group[0])] for group in groups]
