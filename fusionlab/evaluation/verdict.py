"""Whether matching helped, in plain words computed from the numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from fusionlab.evaluation.distances import by_pair
from fusionlab.evaluation.results import END_MODEL, UNMATCHED, Column, Domain, Entry, Results, main_columns
from fusionlab.evaluation.wording import (
    domain_label,
    format_change,
    format_value,
    is_fraction,
    listing,
    lower_is_better,
    matching_label,
    metric_label,
    place_label,
)

HELPS, SAME, HURTS = "helps", "makes no difference", "does not help"


@dataclass(frozen=True)
class Verdict:
    """A headline and the paragraphs that support it; names in them are set in backticks."""

    headline: str
    paragraphs: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((self.headline, *self.paragraphs))


@dataclass(frozen=True)
class _Group:
    """Main scores on one data set, or their mean over the data sets of one domain."""

    where: str
    metric: str
    ends: tuple[float, ...]
    merges: tuple[tuple[Entry, float], ...]

    @property
    def unmatched(self) -> list[tuple[Entry, float]]:
        return [(entry, value) for entry, value in self.merges if entry.matching == UNMATCHED]

    @property
    def matched(self) -> list[tuple[Entry, float]]:
        return [(entry, value) for entry, value in self.merges if entry.matching != UNMATCHED]

    def best(self, merges: Sequence[tuple[Entry, float]]) -> tuple[Entry, float]:
        return (min if lower_is_better(self.metric) else max)(merges, key=lambda merge: merge[1])

    def gain(self, value: float, reference: float) -> float:
        """How much better a value is than a reference, as precisely as both are shown."""
        digits = 3 if is_fraction(self.metric) else 2
        return round(value, digits) * self.sign - round(reference, digits) * self.sign

    @property
    def sign(self) -> int:
        return -1 if lower_is_better(self.metric) else 1

    @property
    def effect(self) -> str | None:
        """What the best matched merge is against the best unmatched one; None where one of them is missing."""
        if not self.unmatched or not self.matched:
            return None
        gain = self.gain(self.best(self.matched)[1], self.best(self.unmatched)[1])
        return HELPS if gain > 1e-9 else HURTS if gain < -1e-9 else SAME

    def show(self, value: float) -> str:
        return format_value(self.metric, value, unit=True)

    def difference(self, gain: float) -> str:
        if is_fraction(self.metric):
            points = f"{100 * abs(gain):.1f}"
            return f"{points} point" if points == "1.0" else f"{points} points"
        return f"{abs(gain):.2f}"


def verdict(results: Results) -> Verdict:
    """Say in a few sentences what the results mean, also where matching did not help or nothing was evaluated."""
    groups = [group for group in _groups(results) if group.merges]
    paragraphs = [" ".join(_sentences(group)) for group in groups]
    if any(len(group.merges) > 2 for group in groups):
        paragraphs[-1] += " The best merge was picked by these same numbers, so expect slightly less on new data."
    weights = _barriers(results) + _distances(results, scored=bool(groups))
    paragraphs += [" ".join(weights)] if weights else []
    if groups:
        return Verdict(_headline(groups), tuple(paragraphs))
    if results.curves:
        return Verdict("No merge was scored by itself; the line between the models was.", tuple(paragraphs))
    if results.distances:
        return Verdict("Distances were measured, but no merge was evaluated on data.", tuple(paragraphs))
    if results.rows:
        return Verdict("Only end models were evaluated; there is no merge to compare them with.", ())
    return Verdict("Nothing was measured.", ())


def _groups(results: Results) -> list[_Group]:
    table = results.table()
    places: dict[tuple[Domain, str], list[Column]] = {}
    for column in main_columns(table):
        places.setdefault((column.domain, column.metric), []).append(column)
    groups = []
    for (domain, metric), columns in places.items():
        # Up to two data sets are told one by one; more are told as their mean.
        parts = [[column] for column in columns] if len(columns) < 3 else [columns]
        for part in parts:
            indices = [table.columns.index(column) for column in part]
            scored = [
                (entry, fmean(values))
                for entry in table.entries
                if len(values := [v for i in indices if (v := entry.values[i]) is not None and math.isfinite(v)])
                == len(indices)
            ]
            where = f"on {place_label(part[0].data_set, domain)}"
            if len(part) > 1:
                where = f"on average over the {len(part)} data sets {domain_label(domain)}".strip()
            ends = tuple(value for entry, value in scored if entry.method == END_MODEL)
            groups.append(_Group(where, metric, ends, tuple(merge for merge in scored if merge[0].is_merge)))
    return groups


def _headline(groups: Sequence[_Group]) -> str:
    compared = [group for group in groups if group.effect is not None]
    if not compared:
        return "Matched and unmatched merges cannot be compared: only one kind was evaluated."
    effects = {group.effect for group in compared}
    if len(effects) > 1:
        return (
            "Matching "
            + "; it ".join(
                f"{effect} " + listing([group.where for group in compared if group.effect == effect])
                for effect in (HELPS, SAME, HURTS)
                if effect in effects
            )
            + "."
        )
    first = compared[0]
    before, after = first.best(first.unmatched)[1], first.best(first.matched)[1]
    change = f"{first.show(before)} to {first.show(after)} {metric_label(first.metric)} {first.where}"
    ends = max(first.ends, key=lambda end: end * first.sign, default=None)
    level = "" if ends is None else f"; the best end model has {first.show(ends)}"
    if first.effect == HELPS:
        return f"Matching helps: the best merge goes from {change}{level}."
    if first.effect == SAME:
        return f"Matching makes no difference: {first.show(after)} {metric_label(first.metric)} with and without it."
    return f"Matching does not help: the best merge goes from {change}{level}."


def _sentences(group: _Group) -> list[str]:
    metric = metric_label(group.metric)
    sentences, clauses = [], []
    if group.unmatched:
        entry, value = group.best(group.unmatched)
        name = "plain averaging" if entry.method == "simple" else f"unmatched `{entry.method}`"
        clauses.append(f"{name} {'keeps' if group.sign > 0 else 'has'} {group.show(value)} {metric}")
    if 0 < len(group.matched) <= 2:
        clauses += [
            f"matched by `{entry.matching}` the {_merge_name(group, entry)} reaches {group.show(value)}"
            for entry, value in group.matched
        ]
    elif group.matched:
        low, high = sorted(value for _, value in group.matched)[:: len(group.matched) - 1]
        clauses.append(f"the {len(group.matched)} matched merges reach {group.show(low)} to {group.show(high)}")
    if group.ends:
        clauses.append(_ends(group))
    sentences.append(f"{group.where[0].upper()}{group.where[1:]} {'; '.join(clauses)}.")
    entry, value = group.best(group.merges)
    best = f"Best merge: {_entry_name(entry)}, {group.show(value)}"
    if group.ends:
        end = max(group.ends, key=lambda end: end * group.sign)
        gain = group.gain(value, end)
        side = "better" if gain > 0 else "worse"
        level = f"{group.difference(gain)} {side} than" if abs(gain) > 1e-9 else "level with"
        best += f", {level} the best end model" if len(group.ends) > 1 else f", {level} the end model"
    sentences.append(best + ".")
    sentences += _how_many_help(group)
    return sentences


def _how_many_help(group: _Group) -> list[str]:
    if group.effect is None:
        return []
    reference = group.best(group.unmatched)[1]
    gains = [group.gain(value, reference) for _, value in group.matched]
    above = sum(gain > 1e-9 for gain in gains)
    if group.effect == HURTS:
        loss = group.difference(group.gain(group.best(group.matched)[1], reference))
        return [f"The best matched merge is {loss} worse than the best unmatched one."]
    if group.effect == HELPS and len(gains) > 1 and above < len(gains):
        few = f"Only {above} of the {len(gains)} matched merges {'is' if above == 1 else 'are'} better"
        return [f"{few} than the best unmatched one."]
    return []


def _ends(group: _Group) -> str:
    values = [group.show(value) for value in group.ends]
    if len(values) == 1:
        return f"the end model has {values[0]}"
    if len(values) == 2:
        return f"the end models have {values[0].removesuffix(' %')} and {values[1]}"
    return f"the {len(values)} end models have {group.show(min(group.ends))} to {group.show(max(group.ends))}"


def _barriers(results: Results) -> list[str]:
    sentences = []
    for anchor, source, data_set in dict.fromkeys((c.anchor, c.source, c.data_set) for c in results.curves):
        found = [
            c for c in results.curves
            if (c.anchor, c.source, c.data_set) == (anchor, source, data_set) and math.isfinite(c.barrier)
        ]  # fmt: skip
        matched = [c for c in found if c.matching != UNMATCHED]
        unmatched = next((c for c in found if c.matching == UNMATCHED), None)
        if unmatched is None or not matched:
            continue
        best = min(matched, key=lambda curve: curve.barrier)
        before, after = format_value("barrier", unmatched.barrier), format_value("barrier", best.barrier)
        verb = "stays at" if before == after else "falls" if best.barrier < unmatched.barrier else "rises"
        change = before if before == after else f"from {before} to {after}"
        sentences.append(
            f"The loss barrier between `{anchor}` and `{source}` on {data_set} {verb} {change} "
            f"with {'the best matching, ' if len(matched) > 1 else ''}`{best.matching}`."
        )
    # More than three pairs are read in the table of barriers, not in prose.
    return sentences if len(sentences) <= 3 else []


def _distances(results: Results, scored: bool) -> list[str]:
    sentences = []
    for (anchor, source), totals in by_pair(results.total_distances()).items():
        # Distances in different gauges cannot be compared; what each matching changes in its own can.
        best = min(totals, key=lambda total: total.after / total.before if total.before else math.inf)
        opening = f"With `{best.matching}`" if len(totals) == 1 else f"Weights come closest with `{best.matching}`:"
        start = "" if best.as_given is None else f", in a gauge that takes it there from {_length(best.as_given)},"
        sentences.append(
            f"{opening} the distance from `{source}` to `{anchor}` goes from {_length(best.before)}{start} "
            f"to {_length(best.after)} ({format_change(best.before, best.after)})."
        )
    sentences = sentences if len(sentences) <= 3 else []
    if sentences and not scored:
        sentences.append("Closer weights alone do not tell whether a merge works: evaluate on data to find out.")
    return sentences


def _length(value: float) -> str:
    return format_value("distance", value)


def _merge_name(group: _Group, entry: Entry) -> str:
    return "merge" if len({other.method for other, _ in group.merges}) == 1 else f"`{entry.method}` merge"


def _entry_name(entry: Entry) -> str:
    return (
        f"`{entry.method}`, {matching_label(entry.matching)}"
        if entry.matching == UNMATCHED
        else (f"`{entry.method}` matched by `{entry.matching}`")
    )
