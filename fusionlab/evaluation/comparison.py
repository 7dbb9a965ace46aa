"""Differences of merges on the same test examples, with intervals over those: matched to unmatched, to end models."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from fusionlab.evaluation.bootstrap import DRAWS, Draws, interval, resampled
from fusionlab.evaluation.contributions import Answers
from fusionlab.evaluation.rows import END_MODEL, NO_MATCHING, REFERENCES, UNMATCHED, Domain

# More data sets than this are told as their mean.
TOLD_ALONE = 2


@dataclass(frozen=True)
class Measured:
    """One model on one test set.

    Attributes:
        models: names of the end models in it.
        method: merge method, or ``end model``, ``ensemble``.
        matching: its name, ``none``, or ``-`` where there is no merge.
        data_set: name of the test set.
        domain: ``in`` or ``out``.
        answers: what each example adds.
        seed: of the end models; what differs in it alone is told as its mean.
    """

    models: tuple[str, ...]
    method: str
    matching: str
    data_set: str
    domain: Domain
    answers: Answers
    seed: int = 0


@dataclass(frozen=True)
class Comparison:
    """The effect of matching: the same method matched minus unmatched, paired by test example.

    Of a `reference` it is what the merge gains over end models instead: the merge minus these.

    Attributes:
        models: names of the end models.
        method: merge method, the same on both sides.
        matching: of the matched side.
        data_set: the test set; None for the mean over those of the domain.
        domain: ``in`` or ``out``.
        metric: what is compared.
        unmatched: the metric of the unmatched merge; of the reference where there is one.
        matched: of the matched one; of the merge where there is a reference.
        lower: lower end of the 95 % bootstrap interval of the difference; None where there is none.
        upper: its upper end.
        examples: how many test examples were resampled.
        draws: how many times.
        data_sets: how many test sets they are from.
        reference: names of the end models of which the mean is compared with; empty for the unmatched merge.
    """

    models: tuple[str, ...]
    method: str
    matching: str
    data_set: str | None
    domain: Domain
    metric: str
    unmatched: float
    matched: float
    lower: float | None
    upper: float | None
    examples: int
    draws: int = DRAWS
    data_sets: int = 1
    reference: tuple[str, ...] = ()

    @property
    def difference(self) -> float:
        """Matched minus unmatched."""
        return self.matched - self.unmatched


@dataclass(frozen=True)
class Level:
    """The uncertainty of one score, and the level of chance beside it.

    Attributes:
        models: names of the end models in it.
        method: merge method, or ``end model``, ``ensemble``.
        matching: its name, ``none``, or ``-``.
        data_set: the test set; None for the mean over those of the domain.
        domain: ``in`` or ``out``.
        metric: what is measured.
        lower: lower end of the score's 95 % bootstrap interval over test examples; None where there is none.
        upper: its upper end.
        chance: what the best answer that ignores the input scores; None where there is no such level.
        is_constant: whether every example got the same class.
        references: of a merge its difference to each of its end models, and to the mean of all of them.
    """

    models: tuple[str, ...]
    method: str
    matching: str
    data_set: str | None
    domain: Domain
    metric: str
    lower: float | None
    upper: float | None
    chance: float | None
    is_constant: bool = False
    references: tuple[Comparison, ...] = ()


@dataclass(frozen=True)
class GroupComparison:
    """The effect of matching over the groups of a grid: matched minus unmatched, paired by group and seed.

    Where there is no pair, as all that were measured diverged, its numbers are NaN.

    Attributes:
        method: merge method, the same on both sides.
        matching: of the matched side.
        domain: ``in`` or ``out``.
        metric: what is compared.
        unmatched: mean of the metric over the unmatched merges.
        matched: over the matched ones.
        lower: lower end of the 95 % bootstrap interval of the mean difference, over clusters of groups that share no
            end model; None where these are too few, and the numbers only describe the groups.
        upper: its upper end.
        smallest: the smallest of the differences.
        largest: the largest.
        pairs: how many differences there are.
        clusters: of how many clusters of groups.
        diverged: groups and seeds of which a number is not finite, and which are left out.
    """

    method: str
    matching: str
    domain: Domain
    metric: str
    unmatched: float
    matched: float
    lower: float | None
    upper: float | None
    smallest: float
    largest: float
    pairs: int
    clusters: int
    diverged: tuple[str, ...] = ()

    @property
    def difference(self) -> float:
        """Matched minus unmatched."""
        return self.matched - self.unmatched


Key = tuple[tuple[str, ...], str, str]


@dataclass(frozen=True)
class _Score:
    """One metric of one model at one place, and on every resample."""

    value: float
    draws: Draws
    examples: int
    fewest: int  # of the smallest test set: where they are too few there is no interval, whatever the others have
    chance: float | None
    is_constant: bool


# By model and metric, then by seed.
_Scores = dict[tuple[Key, str], dict[int, _Score]]


def compare(measured: Iterable[Measured], draws: int = DRAWS, seed: int = 0) -> tuple[list[Comparison], list[Level]]:
    """Pair every matched merge with the unmatched one by the same method, on the same resamples of the examples.

    Of several seeds of the end models it is the mean over those that both sides have, each on the same resamples.

    Args:
        measured: all models on all test sets.
        draws: how many resamples.
        seed: of the draws.

    Returns:
        Comparisons of every matched merge by every metric on every test set, and on the mean over those of a domain
        where they are more than `TOLD_ALONE`; and the level of every model there.

    Raises:
        ValueError: models that were tested on different numbers of examples of one test set.
    """
    places: dict[tuple[Domain, str], list[Measured]] = {}
    for one in measured:
        places.setdefault((one.domain, one.data_set), []).append(one)
    scores = {place: _scores(found, draws, seed) for place, found in places.items()}
    comparisons: list[Comparison] = []
    levels: list[Level] = []
    for (domain, name), found in scores.items():
        _tell(found, name, domain, 1, draws, comparisons, levels)
    for domain in dict.fromkeys(domain for domain, _ in scores):
        parts = [found for (where, _), found in scores.items() if where == domain]
        for metric in dict.fromkeys(metric for part in parts for _, metric in part):
            sets = [part for part in parts if any(metric == known for _, known in part)]
            if len(sets) > TOLD_ALONE:
                _tell(_over_sets(sets, metric), None, domain, len(sets), draws, comparisons, levels)
    return comparisons, levels


def _scores(measured: Sequence[Measured], draws: int, seed: int) -> _Scores:
    """Every metric of every model, all on the same resamples of one test set."""
    found = resampled([one.answers for one in measured], draws, seed, measured[0].data_set)
    scores: _Scores = {}
    for one, drawn in zip(measured, found, strict=True):
        key = (one.models, one.method, one.matching)
        for metric, contributions in one.answers.contributions.items():
            count, chance = contributions.examples, one.answers.chance.get(metric)
            whole = float(contributions.scores(np.ones((1, count)))[0]) if count else math.nan
            score = _Score(whole, drawn[metric], count, count, chance, one.answers.is_constant)
            scores.setdefault((key, metric), {})[one.seed] = score
    return scores


def _over_sets(sets: Sequence[_Scores], metric: str) -> _Scores:
    """The mean over test sets of the models that were tested on all of them; the sets are drawn independently."""
    keys = [key for key in sets[0] if key[1] == metric and all(key in part for part in sets)]
    return {
        key: {
            seed: _mean([part[key][seed] for part in sets], sum(part[key][seed].examples for part in sets))
            for seed in sets[0][key]
            if all(seed in part[key] for part in sets)
        }
        for key in keys
    }


def _mean(scores: Sequence[_Score], examples: int) -> _Score:
    levels = [score.chance for score in scores if score.chance is not None]
    return _Score(
        fmean(score.value for score in scores), np.mean([score.draws for score in scores], axis=0), examples,
        min(score.fewest for score in scores), fmean(levels) if len(levels) == len(scores) else None,
        all(score.is_constant for score in scores),
    )  # fmt: skip


def _tell(
    found: _Scores, data_set: str | None, domain: Domain, data_sets: int, draws: int,
    comparisons: list[Comparison], levels: list[Level],
) -> None:  # fmt: skip
    for ((models, method, matching), metric), by_seed in found.items():
        if not by_seed:
            continue
        place = (models, method, matching, data_set, domain, metric)
        score = _mean(list(by_seed.values()), next(iter(by_seed.values())).examples)
        lower, upper = interval(score.draws, score.fewest) or (None, None)
        references = tuple(
            _difference(place, by_seed, ends, draws, data_sets, names)
            for names, ends in (_ends(found, models, metric) if method not in REFERENCES else {}).items()
            if set(ends) & set(by_seed)
        )
        levels.append(Level(*place, lower, upper, score.chance, score.is_constant, references))
        plain = found.get(((models, method, UNMATCHED), metric), {})
        if matching not in (UNMATCHED, NO_MATCHING) and set(plain) & set(by_seed):
            comparisons.append(_difference(place, by_seed, plain, draws, data_sets))


_Where = tuple[tuple[str, ...], str, str, str | None, Domain, str]


def _difference(
    place: _Where, after: Mapping[int, _Score], before: Mapping[int, _Score], draws: int, data_sets: int,
    reference: tuple[str, ...] = (),
) -> Comparison:  # fmt: skip
    """One model minus another on the same resamples, over the seeds that both have."""
    seeds = [seed for seed in after if seed in before]
    examples = next(iter(after.values())).examples
    one, other = (_mean([side[seed] for seed in seeds], examples) for side in (after, before))
    # A loss that is not a number on some examples is one on resamples without them.
    ends = interval(one.draws - other.draws, one.fewest) if math.isfinite(one.value - other.value) else None
    lower, upper = ends or (None, None)
    return Comparison(*place, other.value, one.value, lower, upper, examples, draws, data_sets, reference)


def _ends(found: _Scores, models: tuple[str, ...], metric: str) -> dict[tuple[str, ...], dict[int, _Score]]:
    """Scores of the end models by the one name of each; and their mean, by all names, where all were measured."""
    alone: dict[tuple[str, ...], dict[int, _Score]] = {
        (name,): found.get((((name,), END_MODEL, NO_MATCHING), metric), {}) for name in models
    }  # fmt: skip
    known = {names: scores for names, scores in alone.items() if scores}
    if 1 < len(models) == len(known):
        first, *others = known.values()
        seeds = [seed for seed in first if all(seed in other for other in others)]
        known[models] = {
            seed: _mean([first[seed], *(other[seed] for other in others)], first[seed].examples) for seed in seeds
        }
    return known
