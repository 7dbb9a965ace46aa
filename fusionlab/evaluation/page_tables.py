"""The tables of the page as they are read: words and rounded numbers, no markup."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import hypot

from fusionlab.evaluation.distances import Distance, by_gauge, by_pair
from fusionlab.evaluation.results import UNMATCHED, Curve, Entry, Results
from fusionlab.evaluation.wording import (
    format_change,
    format_value,
    gauge_label,
    matching_label,
    merge_name,
    metric_heading,
    models_label,
    place_label,
)


@dataclass(frozen=True)
class PlainTable:
    """A table of one head and lines.

    Attributes:
        heads: one for each column.
        lines: as many cells each.
        texts: the first `texts` columns are words, the others numbers.
        above: head and cell of each column that says the same on every line, to be told once above the table.
    """

    heads: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    texts: int
    above: tuple[tuple[str, str], ...] = ()


def plain_table(heads: Sequence[str], lines: Sequence[Sequence[str]], texts: int) -> PlainTable:
    """A table whose columns of words are told once above it where all of several lines agree.

    Args:
        heads: one for each column.
        lines: as many cells each; at least one line.
        texts: how many columns, from the left, are words.
    """
    same = [len(lines) > 1 and len({line[index] for line in lines}) == 1 for index in range(texts)]
    kept = [index for index in range(len(heads)) if index >= texts or not same[index]]
    return PlainTable(
        tuple(heads[index] for index in kept),
        tuple(tuple(line[index] for index in kept) for line in lines),
        texts - sum(same),
        tuple((heads[index], lines[0][index]) for index in range(texts) if same[index]),
    )


@dataclass(frozen=True)
class ScoreLine:
    """One end model or merge of a `ScoreTable`.

    Attributes:
        names: one for each of the table's `heads`.
        is_merge: False for end models and other references.
        scores: the value in each column, and True where it is the best merge's.
        seconds: time for matching and merging; empty where there is none.
    """

    names: tuple[str, ...]
    is_merge: bool
    scores: tuple[tuple[str, bool], ...]
    seconds: str


@dataclass(frozen=True)
class ScoreTable:
    """All scores: one line for each end model and merge, columns grouped by data set.

    Attributes:
        heads: of the columns that name the line.
        places: each data set, and how many columns it spans.
        metrics: the heads of the columns of scores.
        lines: end models first.
        timed: whether there is a last column with the time.
        has_best: whether any score is marked as the best.
        kept: the merge that is kept, by name; empty where none is.
    """

    heads: tuple[str, ...]
    places: tuple[tuple[str, int], ...]
    metrics: tuple[str, ...]
    lines: tuple[ScoreLine, ...]
    timed: bool
    has_best: bool
    kept: str


def score_table(results: Results) -> ScoreTable | None:
    """All scores of the results; None where there are none."""
    table = results.table()
    if not table.entries:
        return None
    places = groupby(table.columns, key=lambda column: (column.data_set, column.domain))
    # Where all merges are of the same models, naming them on every line says nothing.
    named = len({entry.models for entry in table.entries if entry.is_merge}) > 1
    best = [table.best(index) for index in range(len(table.columns))]
    lines = []
    for index, entry in enumerate(table.entries):
        cells = zip(table.columns, entry.values, best, strict=True)
        scores = tuple((format_value(column.metric, value), index in winners) for column, value, winners in cells)
        seconds = "" if entry.seconds is None else f"{entry.seconds:.1f}"
        lines.append(ScoreLine(_entry_names(entry, results.models, named), entry.is_merge, scores, seconds))
    return ScoreTable(
        ("model or matching", "method", *(("models",) if named else ())),
        tuple((place_label(*place), len(list(columns))) for place, columns in places),
        tuple(metric_heading(column.metric) for column in table.columns),
        tuple(lines),
        any(entry.seconds is not None for entry in table.entries),
        any(best),
        "" if results.kept is None else merge_name(*results.kept),
    )


def _entry_names(entry: Entry, models: tuple[str, ...], named: bool) -> tuple[str, ...]:
    name = matching_label(entry.matching) if entry.is_merge else entry.name
    merged = models_label(entry.models, models) if entry.is_merge else ""
    return (name, entry.method, *((merged,) if named else ()))


def barrier_tables(curves: Sequence[Curve]) -> tuple[PlainTable, PlainTable] | None:
    """The barrier of each curve, and all points of the curves; None where there are no curves."""
    if not curves:
        return None
    names = [
        (f"{c.anchor} to {c.source}", place_label(c.data_set, c.domain), matching_label(c.matching)) for c in curves
    ]
    lines = [
        (
            *name, format_value("barrier", c.barrier), format_value("loss", c.midpoint_loss),
            format_value(c.metric, c.midpoint_score),
        )
        for name, c in zip(names, curves, strict=True)
    ]  # fmt: skip
    points = [
        (*name, f"{position:.3g}", format_value("loss", loss), format_value(c.metric, score))
        for name, c in zip(names, curves, strict=True)
        for position, loss, score in zip(c.positions, c.loss, c.score, strict=True)
    ]
    heads = ("anchor to model", "data set", "matching")
    metrics = list(dict.fromkeys(c.metric for c in curves))
    metric = metric_heading(metrics[0]) if len(metrics) == 1 else "main metric"
    summary = plain_table((*heads, "barrier (loss)", "loss half way", f"{metric}, half way"), lines, texts=3)
    return summary, plain_table((*heads, "position", "loss", metric), points, texts=3)


def distance_tables(distances: Sequence[Distance]) -> tuple[PlainTable, PlainTable] | None:
    """Distances over all layers, and those of every layer; None where there are none."""
    if not distances:
        return None
    roles = list(dict.fromkeys(d.role for d in distances))
    lines: list[tuple[str, ...]] = []
    for (anchor, source), totals in by_pair(Results("", (), distances=list(distances)).total_distances()).items():
        parts = [d for d in distances if (d.anchor, d.source) == (anchor, source)]
        # Every matching starts from the same two models, so the first one tells how far apart they come.
        found = [(UNMATCHED, "given", totals[0])]
        found += [(t.matching, "after", t) for t in totals if t.as_given is None]
        for gauge in by_gauge(totals):
            found.append((gauge_label([t.matching for t in gauge]), "before", gauge[0]))
            found += [(t.matching, "after", t) for t in gauge]
        lines += [
            (f"{source} to {anchor}", matching_label(label), *_over_layers(parts, total.matching, roles, kind))
            for label, kind, total in found
        ]
    layers = [
        (
            f"{d.source} to {d.anchor}", matching_label(d.matching), d.role,
            "none" if d.layer is None else str(d.layer), format_value("distance", d.before),
            format_value("distance", d.after), format_change(d.before, d.after),
        )
        for d in distances
    ]  # fmt: skip
    heads = ("model to anchor", "matching")
    summary = plain_table((*heads, *roles, "whole model"), lines, texts=2)
    return summary, plain_table((*heads, "kind of space", "layer", "before", "after", "change"), layers, texts=3)


def _over_layers(parts: Sequence[Distance], matching: str, roles: Sequence[str], kind: str) -> list[str]:
    """Distances of one pair in one matching, by role and of the whole model; after matching with their change."""
    known = [d for d in parts if d.matching == matching]
    cells = []
    for group in (*([d for d in known if d.role == role] for role in roles), known):
        value = hypot(*(getattr(d, kind) for d in group))
        change = f" ({format_change(hypot(*(d.before for d in group)), value)})" if kind == "after" else ""
        cells.append(format_value("distance", value) + change)
    return cells
