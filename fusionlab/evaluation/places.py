"""A data set, or the mean over those of a domain, where merges are judged: every score, claim and failure there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from fusionlab.evaluation.claims import Claim
from fusionlab.evaluation.comparison import TOLD_ALONE, Comparison, Domain, Level
from fusionlab.evaluation.metrics import is_fraction, lower_is_better
from fusionlab.evaluation.results import END_MODEL, UNMATCHED, Column, Entry, Results, Table, main_columns
from fusionlab.evaluation.wording import (
    domain_label,
    format_difference,
    format_value,
    merge_name,
    metric_label,
    models_label,
    place_label,
    shown_decimals,
    shown_difference,
)


@dataclass(frozen=True)
class Scored:
    """One end model or merge at one place.

    Attributes:
        entry: which one.
        value: its main score there.
        diverged: what of it is not a number there, such as ``loss is not a number``; empty where all is.
        weakness: what it fails to do where nothing diverged, such as ``is at chance level (10.0 %)``; or empty.
        chance: what the best answer that ignores the input scores there; None where there is no such level.
    """

    entry: Entry
    value: float
    diverged: str = ""
    weakness: str = ""
    chance: float | None = None

    @property
    def called(self) -> str:
        """Its name in the verdict: ``the end model a``, ``plain averaging unmatched``."""
        if not self.entry.is_merge:
            return f"the end model `{self.entry.name}`"
        return merge_name(self.entry.method, self.entry.matching)


@dataclass(frozen=True)
class Place:
    """Main scores on one data set, or their mean over the data sets of one domain.

    Attributes:
        where: in words, such as ``on digits (in domain)``.
        metric: the main metric.
        ends: the end models.
        merges: the merges, unmatched ones first.
        claims: what matching does, by method and matching.
        references: what each merge gains over end models, by method and matching, see `Level`.
        left_out: what of a grid diverged.
    """

    where: str
    metric: str
    ends: tuple[Scored, ...] = ()
    merges: tuple[Scored, ...] = ()
    claims: dict[tuple[str, str], Claim] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    references: dict[tuple[str, str], tuple[Comparison, ...]] = field(default_factory=dict)

    @property
    def unmatched(self) -> list[Scored]:
        """Merges of the models as they are."""
        return [merge for merge in self.merges if merge.entry.matching == UNMATCHED]

    def find(self, method: str, matching: str) -> Scored | None:
        """One merge; None where it was not measured."""
        found = (m for m in self.merges if (m.entry.method, m.entry.matching) == (method, matching))
        return next(found, None)

    def best(self, scored: Sequence[Scored]) -> Scored | None:
        """The one with the best score; None where none has a number."""
        known = [one for one in scored if not one.diverged and math.isfinite(one.value)]
        return max(known, key=lambda one: -one.value if lower_is_better(self.metric) else one.value, default=None)

    def show(self, value: float) -> str:
        """A score with its unit."""
        return format_value(self.metric, value, unit=True)

    def against(self, value: float, reference: float) -> str:
        """The difference of two scores in words ("1.2 points better than"), in the digits that are shown."""
        decimals = shown_decimals(self.metric, value, reference)
        # Of the numbers as they are shown, so that their difference is what a reader finds by subtracting them.
        change = round(value, decimals) - round(reference, decimals)
        if shown_difference(self.metric, change, decimals) == 0:
            return "level with"
        side = "better than" if (change > 0) != lower_is_better(self.metric) else "worse than"
        return f"{format_difference(self.metric, abs(change), decimals, unit=True, sign=False)} {side}"


def places(results: Results) -> list[Place]:
    """Every place that the results have merges or end models at, in the order of their columns.

    Up to two data sets of a domain are told one by one, more as their mean; of several groups of models each is a place
    of its own, unless the results hold what they come to over all groups.
    """
    if results.overall:
        return _of_groups(results)
    table = results.table()
    grouped: dict[tuple[Domain, str], list[Column]] = {}
    for column in main_columns(table):
        grouped.setdefault((column.domain, column.metric), []).append(column)
    parts = [
        part
        for columns in grouped.values()
        for part in ([[column] for column in columns] if len(columns) <= TOLD_ALONE else [columns])
    ]
    groups = list(dict.fromkeys(entry.models for entry in table.entries if entry.is_merge))
    return [_place(results, table, part, models) for part in parts for models in groups or [results.models]]


def _place(results: Results, table: Table, columns: Sequence[Column], models: tuple[str, ...]) -> Place:
    first = columns[0]
    where = f"on {place_label(first.data_set, first.domain)}"
    if len(columns) > 1:
        where = f"on average over the {len(columns)} data sets {domain_label(first.domain)}".strip()
    if len({entry.models for entry in table.entries if entry.is_merge}) > 1:
        where += f", {models_label(models, results.models)}"
    indices = [table.columns.index(column) for column in columns]
    scored = []
    for entry in table.entries:
        values = [value for index in indices if (value := entry.values[index]) is not None]
        if len(values) == len(indices):
            diverged = _diverged(table, entry, columns)
            weakness = "" if diverged else _weakness(results, entry, columns, fmean(values))
            level = _level(results, columns, entry)
            scored.append(Scored(entry, fmean(values), diverged, weakness, None if level is None else level.chance))
    merges = tuple(one for one in scored if one.entry.is_merge and one.entry.models == models)
    ends = tuple(one for one in scored if one.entry.method == END_MODEL and set(one.entry.models) <= set(models))
    plain = {one.entry.method: one for one in merges if one.entry.matching == UNMATCHED}
    claims = {
        (one.entry.method, one.entry.matching): _claim(results, columns, plain[one.entry.method], one)
        for one in merges
        if one.entry.matching != UNMATCHED and one.entry.method in plain
    }
    references = {(one.entry.method, one.entry.matching): _references(results, columns, one.entry) for one in merges}
    return Place(where, first.metric, ends, merges, claims, references=references)


def _references(results: Results, columns: Sequence[Column], entry: Entry) -> tuple[Comparison, ...]:
    level = _level(results, columns, entry)
    return () if level is None else tuple(one for one in level.references if one.data_sets == len(columns))


def _level(results: Results, columns: Sequence[Column], entry: Entry) -> Level | None:
    first = columns[0]
    data_set = first.data_set if len(columns) == 1 else None
    key = (entry.models, entry.method, entry.matching, data_set, first.domain, first.metric)
    return next((one for one in results.levels if _key(one) == key), None)


def _claim(results: Results, columns: Sequence[Column], unmatched: Scored, matched: Scored) -> Claim:
    first, entry = columns[0], matched.entry
    data_set = first.data_set if len(columns) == 1 else None
    key = (entry.models, entry.method, entry.matching, data_set, first.domain, first.metric)
    measured = (
        c for c in results.comparisons
        if (c.models, c.method, c.matching, c.data_set, c.domain, c.metric) == key and c.data_sets == len(columns)
    )  # fmt: skip
    # Without what the examples add there is a difference, and no interval.
    bare = Comparison(*key, unmatched.value, matched.value, None, None, 0, 0, len(columns))
    sides = (("unmatched", unmatched.diverged), ("matched", matched.diverged))
    return Claim(next(measured, bare), tuple((side, thing) for side, thing in sides if thing))


def _diverged(table: Table, entry: Entry, columns: Sequence[Column]) -> str:
    """The first number that is not finite, in words: a loss, or the score itself where no loss was measured.

    A score alone may be undefined though nothing diverged, as a correlation with equal outputs is; and an accuracy is a
    number even where all logits are not.
    """
    for column in columns:
        there = {
            other.metric: value
            for other, value in zip(table.columns, entry.values, strict=True)
            if (other.domain, other.data_set) == (column.domain, column.data_set) and value is not None
        }
        losses = {metric: value for metric, value in there.items() if lower_is_better(metric)}
        for metric, value in (losses or there).items():
            if not math.isfinite(value):
                on = f" on {column.data_set}" if len(columns) > 1 else ""
                return f"{metric_label(metric)} is {format_value(metric, value)}{on}"
    return ""


def _weakness(results: Results, entry: Entry, columns: Sequence[Column], value: float) -> str:
    """A claim that a model says nothing about its inputs: no better than an answer that ignores them."""
    metric, level = columns[0].metric, _level(results, columns, entry)
    if not math.isfinite(value):
        return f"has no {metric_label(metric)}: it is not defined where all outputs, or all labels, are alike"
    shown = format_value(metric, value, unit=True)
    if is_fraction(metric) and "accuracy" not in metric and shown == format_value(metric, 0.0, unit=True):
        return f"predicts nothing ({metric_label(metric)} {shown})"
    return "" if level is None or level.chance is None else _against_chance(level, level.chance, value)


def _against_chance(level: Level, chance: float, value: float) -> str:
    """A claim that a score is not above chance: its interval holds that level, or lies on the wrong side of it."""
    shown = format_value(level.metric, chance, unit=True)
    worst, best = (value if end is None else end for end in (level.lower, level.upper))
    if lower_is_better(level.metric):
        return f"is no better than a uniform guess ({metric_label(level.metric)} {shown})" if best >= chance else ""
    same = "gives every example the same class" if level.is_constant else ""
    if worst > chance:
        return same
    side = "below" if best < chance else "at"
    return f"{f'{same}, ' if same else 'is '}{side} chance level ({shown})"


def _key(level: Level) -> tuple[tuple[str, ...], str, str, str | None, Domain, str]:
    return level.models, level.method, level.matching, level.data_set, level.domain, level.metric


def _of_groups(results: Results) -> list[Place]:
    """One place for each domain of a grid."""
    found = []
    for domain, metric in dict.fromkeys((one.domain, one.metric) for one in results.overall):
        here = [one for one in results.overall if (one.domain, one.metric) == (domain, metric)]
        claims = {(one.method, one.matching): Claim(one) for one in here}
        left_out = tuple(dict.fromkeys(name for one in here for name in one.diverged))
        found.append(Place(domain_label(domain), metric, (), (), claims, left_out))
    return found
