"""From finished cells to the one table: means over groups and seeds, standard errors, what matching adds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev

from fusionlab.evaluation.bootstrap import clusters_of, over_clusters
from fusionlab.evaluation.comparison import GroupComparison
from fusionlab.evaluation.metrics import SCORE, is_fraction, lower_is_better
from fusionlab.evaluation.results import END_MODEL, NO_MATCHING, UNMATCHED, Domain, Results, Row, main_columns
from fusionlab.evaluation.rows import MULTITASK
from fusionlab.evaluation.wording import format_value, metric_label
from fusionlab.grid.cells import Finished

DOMAINS: tuple[Domain, ...] = ("in", "out")
OWN, SINGLE, BEST = "end model, its own test set", "end model, test sets of its group", "best end model of the group"


@dataclass(frozen=True)
class Mean:
    """A mean over groups and seeds.

    Attributes:
        value: the mean.
        error: standard error of the mean; None for a single number.
        count: how many numbers.
    """

    value: float
    error: float | None
    count: int

    @staticmethod
    def of(values: Sequence[float]) -> Mean | None:
        """The mean of some numbers, None of none; not a number where one of them is not finite."""
        if not values:
            return None
        if not all(map(math.isfinite, values)):
            return Mean(math.nan, None, len(values))
        return Mean(fmean(values), stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None, len(values))


# What tells an end model from others, by name and seed.
Identity = Callable[[str, int], str]
Place = tuple[tuple[str, ...], int]


@dataclass(frozen=True)
class Line:
    """One line of the summary.

    Attributes:
        method: merge method, or what it is compared with.
        matching: its name, or ``-`` where there is no merge.
        scores: by domain.
        gains: what matching adds, by domain; None where nothing is matched.
        seconds: to match and merge; to train, for an end model that was trained on the way.
        whole: how many groups and seeds a merge's mean is over where no cell is missing, by domain.
    """

    method: str
    matching: str
    scores: dict[Domain, Mean | None]
    gains: dict[Domain, GroupComparison | None]
    seconds: Mean | None = None
    whole: Mapping[Domain, int] = field(default_factory=dict)

    @property
    def is_merge(self) -> bool:
        return self.matching != NO_MATCHING

    def lacks(self, domain: Domain) -> int:
        """The number of groups and seeds that are missing in a merge's mean of a domain; 0 of anything else."""
        mean = self.scores[domain]
        return self.whole[domain] - mean.count if self.is_merge and mean is not None else 0


def named(name: str, seed: int) -> str:
    """An end model of its own for each name and seed."""
    return f"{name}, seed {seed}"


def summarize(finished: Iterable[Finished], identity: Identity = named) -> list[Line]:
    """Means over groups and seeds of the main metric of every data set.

    A cell's score in a domain is the mean over its data sets there. Failed cells are left out, and so are cells that
    diverged on one of them: the mean of what is left would be of the easier data sets.

    Args:
        finished: cells of one grid.
        identity: what tells an end model from others; groups that share one are no independent evidence.
    """
    finished = list(finished)
    metric = headline_metric(finished)
    cells = [done for done in finished if done.error is None]
    scores = {
        (done.cell.models, done.cell.seed, done.cell.method, done.cell.matching): main_rows(done) for done in cells
    }
    groups = list(dict.fromkeys((d.cell.models, d.cell.seed) for d in cells if d.cell.method != END_MODEL))
    times, whole = _times(cells), _whole(finished)
    merged = [(d.cell.models, d.cell.seed) for d in cells if d.cell.method not in (END_MODEL, MULTITASK)]
    lines = _end_model_lines(scores, list(dict.fromkeys(merged)), times.get((END_MODEL, NO_MATCHING)))
    keys = dict.fromkeys((d.cell.method, d.cell.matching) for d in cells if d.cell.method != END_MODEL)
    references = [key for key in keys if key[1] == NO_MATCHING]
    for method, matching in [*references, *(key for key in keys if key not in references)]:
        found = {place: scores[(*place, method, matching)] for place in groups if (*place, method, matching) in scores}
        plain = {place: scores.get((*place, method, UNMATCHED)) for place in found}
        means: dict[Domain, Mean | None] = {}
        gains: dict[Domain, GroupComparison | None] = {}
        for domain in DOMAINS:
            values = {place: mean_score(rows, domain) for place, rows in found.items()}
            means[domain] = Mean.of([value for value in values.values() if value is not None])
            is_matched = matching not in (NO_MATCHING, UNMATCHED)
            before = {place: mean_score(plain[place] or [], domain) for place in found if plain[place] is not None}
            pairs = {place: (before[place], value) for place, value in values.items() if place in before}
            key = (method, matching, domain, metric)
            gains[domain] = _gain(key, pairs, [(plain, before), (found, values)], identity) if is_matched else None
        lines.append(Line(method, matching, means, gains, times.get((method, matching)), whole))
    return lines


def headline_metric(finished: Iterable[Finished]) -> str:
    """The metric that data sets are judged by, what the summary's numbers are; ``score`` where there are several."""
    metrics = {row.metric for done in finished for row in main_rows(done)}
    return next(iter(metrics)) if len(metrics) == 1 else SCORE


def best_lines(lines: Sequence[Line], domain: Domain, metric: str) -> frozenset[int]:
    """Indices of the best merges in a column, as they are shown; empty where there is nothing to choose from.

    A mean that lacks some groups or seeds is of easier or harder ones than the others, so it is never the best.
    """
    known = {
        index: round(found.value, 4 if is_fraction(metric) else 3)
        for index, line in enumerate(lines)
        if line.is_merge
        and (found := line.scores[domain]) is not None
        and not line.lacks(domain)
        and math.isfinite(found.value)
    }
    if len(known) < 2:
        return frozenset()
    best = (min if lower_is_better(metric) else max)(known.values())
    return frozenset(index for index, value in known.items() if value == best)


def _end_model_lines(
    scores: dict[tuple[tuple[str, ...], int, str, str], list[Row]],
    groups: Sequence[tuple[tuple[str, ...], int]],
    training: Mean | None,
) -> list[Line]:
    """Three levels to compare a merge with: specialists at home, a specialist everywhere, and the best of those."""
    ends = {(key[0][0], key[1]): rows for key, rows in scores.items() if key[2] == END_MODEL}
    if not ends:
        return []
    own = [value for rows in ends.values() if (value := mean_score(rows, "in")) is not None]
    outside = _outside(scores)
    out = [value for rows in ends.values() if (value := _over(rows, outside)) is not None]
    single, best = [], []
    lower = any(lower_is_better(row.metric) for rows in ends.values() for row in rows)
    for group, seed in groups:
        members = [ends.get((name, seed), []) for name in group]
        homes = {row.data_set for rows in members for row in rows if row.domain == "in"}
        values = [_over(rows, homes) for rows in members]
        known = [value for value in values if value is not None]
        # Only where each of them was measured on all: under heads of their own they are not.
        if len(known) == len(group):
            single.append(fmean(known))
            best.append((min if lower else max)(known))
    nothing: dict[Domain, GroupComparison | None] = {"in": None, "out": None}
    lines = [Line(OWN, NO_MATCHING, {"in": Mean.of(own), "out": Mean.of(out)}, nothing, training)]
    if single:
        lines.append(Line(SINGLE, NO_MATCHING, {"in": Mean.of(single), "out": None}, nothing))
        lines.append(Line(BEST, NO_MATCHING, {"in": Mean.of(best), "out": None}, nothing))
    return lines


def _whole(finished: Sequence[Finished]) -> dict[Domain, int]:
    """The number of groups and seeds that merges are made of and measured on in each domain, failed or not.

    Of a group all of whose cells failed nobody knows its domains; it counts in those that any other group has.
    """
    domains: dict[Place, set[Domain]] = {(d.cell.models, d.cell.seed): set() for d in finished if d.cell.is_merge}
    for done in finished:
        place = (done.cell.models, done.cell.seed)
        if place in domains:
            domains[place] |= {row.domain for row in done.rows if row.domain is not None}
    anywhere = set[Domain]().union(*domains.values())
    return {domain: sum(domain in (known or anywhere) for known in domains.values()) for domain in DOMAINS}


def _times(cells: Sequence[Finished]) -> dict[tuple[str, str], Mean]:
    found: dict[tuple[str, str], list[float]] = {}
    for done in cells:
        known = [row.seconds for row in done.rows if row.seconds is not None]
        if known:
            found.setdefault((done.cell.method, done.cell.matching), []).append(max(known))
    return {key: mean for key, values in found.items() if (mean := Mean.of(values)) is not None}


def _outside(scores: dict[tuple[tuple[str, ...], int, str, str], list[Row]]) -> set[str | None]:
    """Data sets that are out of domain for every group: those that are no end model's own."""
    own = {row.data_set for key, rows in scores.items() if key[2] == END_MODEL for row in rows if row.domain == "in"}
    return {row.data_set for rows in scores.values() for row in rows if row.domain == "out"} - own


def main_rows(done: Finished) -> list[Row]:
    """The rows of each data set's main metric; not a number where the loss there is none.

    An accuracy is a number even where all logits are not, and says nothing then.
    """
    wanted = {(c.domain, c.data_set, c.metric) for c in main_columns(Results("", (), list(done.rows)).table())}
    broken = {
        (row.domain, row.data_set) for row in done.rows if lower_is_better(row.metric) and not math.isfinite(row.value)
    }
    return [
        replace(row, value=math.nan) if (row.domain, row.data_set) in broken else row
        for row in done.rows
        if (row.domain, row.data_set, row.metric) in wanted
    ]


def divergences(done: Finished) -> list[str]:
    """The scores of a cell that are not finite, such as ``loss on digits is not a number``; none where all are."""
    return [
        f"{metric_label(row.metric)} on {row.data_set} is {format_value(row.metric, row.value)}"
        for row in done.rows
        if not math.isfinite(row.value)
    ]


def mean_score(rows: Sequence[Row], domain: Domain) -> float | None:
    """The mean over the data sets of a domain; None where there is none, or a number that is not finite."""
    return _mean([row.value for row in rows if row.domain == domain])


def _over(rows: Sequence[Row], data_sets: set[str | None]) -> float | None:
    """The mean over some data sets; None where one is missing."""
    values = {row.data_set: row.value for row in rows if row.data_set in data_sets}
    return _mean(list(values.values())) if set(values) == data_sets else None


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values and all(map(math.isfinite, values)) else None


def _gain(
    key: tuple[str, str, Domain, str],
    pairs: Mapping[Place, tuple[float | None, float | None]],
    sides: Sequence[tuple[Mapping[Place, Sequence[Row] | None], Mapping[Place, float | None]]],
    identity: Identity,
) -> GroupComparison | None:
    """The gain by matching; None where no group was measured both unmatched and matched, and none diverged.

    Where each group that was measured diverged on one side or on both, its numbers are NaN and it is over no pairs.

    Args:
        key: method, matching, domain and metric.
        pairs: unmatched and matched score by group and seed; None for one that is no number.
        sides: for the unmatched and for the matched merges their rows and their scores.
        identity: what tells an end model from others.
    """
    _, _, domain, _ = key
    known = {place: (a, b) for place, (a, b) in pairs.items() if a is not None and b is not None}
    diverged = [
        f"{' + '.join(models)}, seed {seed}, {side}"
        for side, (rows, scores) in zip(("unmatched", "matched"), sides, strict=True)
        for (models, seed), score in scores.items()
        # One that was measured nowhere in this domain did not diverge there.
        if score is None and any(row.domain == domain for row in rows[models, seed] or [])
    ]
    if not known:
        nan = math.nan
        return GroupComparison(*key, nan, nan, None, None, nan, nan, 0, 0, tuple(diverged)) if diverged else None
    differences = [after - before for before, after in known.values()]
    clusters = clusters_of([[identity(name, seed) for name in models] for models, seed in known])
    lower, upper = over_clusters(differences, clusters) or (None, None)
    before, after = (fmean(pair[side] for pair in known.values()) for side in (0, 1))
    ends = (lower, upper, min(differences), max(differences))
    return GroupComparison(*key, before, after, *ends, len(differences), len(set(clusters)), tuple(diverged))
