"""Measured numbers as plain data: scores, curves between models and distances."""

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TypeVar

from fusionlab.evaluation.comparison import Comparison, GroupComparison, Level
from fusionlab.evaluation.curves import Curve
from fusionlab.evaluation.disagreement import Example
from fusionlab.evaluation.distances import Distance, TotalDistance, by_pair
from fusionlab.evaluation.metrics import DISTANCE, DISTANCE_IN_GAUGE, is_fraction, lower_is_better
from fusionlab.evaluation.plane import Plane
from fusionlab.evaluation.rows import (
    END_MODEL,
    NO_MATCHING,
    NO_METHOD,
    REFERENCES,
    UNMATCHED,
    Domain,
    Row,
)
from fusionlab.evaluation.wording import domain_label, format_value, matching_label, metric_heading, models_label
from fusionlab.symmetry.html import html_table

T = TypeVar("T")


@dataclass(frozen=True)
class Column:
    """The metric of one column of a results table, and the data set it was measured on."""

    domain: Domain
    data_set: str | None
    metric: str


@dataclass(frozen=True)
class Entry:
    """One line of a results table: an end model, another reference or a merge, its values in the columns' order."""

    models: tuple[str, ...]
    method: str
    matching: str
    values: tuple[float | None, ...]
    seconds: float | None

    @property
    def is_merge(self) -> bool:
        return self.method not in REFERENCES

    @property
    def name(self) -> str:
        """The name of a line that is no merge: of an end model its own, of any other reference its kind."""
        return self.models[0] if self.method == END_MODEL else self.method


@dataclass(frozen=True)
class Table:
    """All scores, one line for each (models, method, matching), one column for each (domain, data set, metric)."""

    columns: tuple[Column, ...]
    entries: tuple[Entry, ...]

    def best(self, column: int) -> frozenset[int]:
        """The index of the best merge in a column; empty where there is no one winner."""
        values = [entry.values[column] for entry in self.entries]
        return best_merges(self.entries, self.columns[column].metric, values)

    def label(self, entry: Entry, all_models: tuple[str, ...]) -> str:
        """The name of one of the entries: of a merge, what tells it from the other merges of the table.

        Args:
            entry: one of the table's.
            all_models: names of all end models.
        """
        if not entry.is_merge:
            return entry.name
        merges = [other for other in self.entries if other.is_merge]
        parts = [matching_label(entry.matching)]
        if len({other.method for other in merges}) > 1:
            parts.insert(0, entry.method)
        if len({other.models for other in merges}) > 1:
            parts.insert(0, models_label(entry.models, all_models))
        return ": ".join(parts)


@dataclass(frozen=True)
class Results:
    """Everything one run measured.

    Args:
        title: what was done, one short line.
        models: names of all end models.
        rows: scores.
        curves: straight lines between pairs of models.
        distances: distances to the anchor, by role and layer.
        settings: how it was done, for the reader; ``"command"``, if present, is shown as the way to reproduce it.
        notes: sentences that the reader must know.
        comparisons: what matching changes, the same method matched and unmatched on the same examples.
        levels: how sure each score is, and what chance would give.
        overall: the same over the groups of a grid, where there are several.
        kept: method and matching of the merge that is kept; the first of each if None.
        examples: some on which the end models and the merge that is kept differ, for the report.
        planes: the loss on the plane through three models, for the report.
    """

    title: str
    models: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    distances: list[Distance] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    levels: list[Level] = field(default_factory=list)
    overall: list[GroupComparison] = field(default_factory=list)
    kept: tuple[str, str] | None = None
    examples: list[Example] = field(default_factory=list)
    planes: list[Plane] = field(default_factory=list)

    def __repr__(self) -> str:
        return (
            f"Results({self.title}: {len(self.models)} models, {len(self.rows)} scores, {len(self.curves)} lines, "
            f"{len(self.distances)} distances)"
        )

    def _repr_html_(self) -> str:
        table = self.table()
        heads = [
            ", ".join(filter(None, (one.data_set, domain_label(one.domain), metric_heading(one.metric))))
            for one in table.columns
        ]
        rows = [
            (
                table.label(entry, self.models), entry.method if entry.is_merge else "",
                *(format_value(one.metric, value) for one, value in zip(table.columns, entry.values, strict=True)),
            )
            for entry in table.entries
        ]  # fmt: skip
        return html_table(repr(self), ("model or matching", "method", *heads), rows)

    @property
    def matchings(self) -> tuple[str, ...]:
        """All matchings, the unmatched case first, then in order of appearance."""
        rows = [row.matching for row in self.rows if row.method not in REFERENCES]
        seen = _unique([*rows, *(c.matching for c in self.curves), *(d.matching for d in self.distances)])
        return tuple(sorted(seen, key=lambda matching: matching != UNMATCHED))

    def table(self) -> Table:
        """Pivot the rows: end models first, then merges, unmatched before matched; of equal rows the last counts."""
        domains: tuple[Domain, ...] = ("in", "out", None)
        data_sets = _unique(row.data_set for row in self.rows)
        columns = sorted(
            _unique(Column(row.domain, row.data_set, row.metric) for row in self.rows),
            key=lambda column: (domains.index(column.domain), data_sets.index(column.data_set)),
        )
        methods = _unique(row.method for row in self.rows)
        models = _unique(row.models for row in self.rows)
        matchings = (NO_MATCHING, *self.matchings)
        keys = sorted(
            _unique((row.models, row.method, row.matching) for row in self.rows),
            key=lambda key: (
                key[1] not in REFERENCES,
                key[1] != END_MODEL,
                models.index(key[0]),
                methods.index(key[1]),
                matchings.index(key[2]) if key[2] in matchings else -1,
            ),
        )
        cells = {(row.models, row.method, row.matching, row.domain, row.data_set, row.metric): row for row in self.rows}
        entries = []
        for key in keys:
            found = [cells.get((*key, column.domain, column.data_set, column.metric)) for column in columns]
            seconds = [row.seconds for row in found if row is not None and row.seconds is not None]
            values = tuple(None if row is None else row.value for row in found)
            entries.append(Entry(*key, values=values, seconds=max(seconds, default=None)))
        return Table(tuple(columns), tuple(entries))

    def all_rows(self) -> list[Row]:
        """The rows, then one for the barrier of each curve, then total distances to the anchor.

        Distances are ``distance_to_anchor``, unmatched as the models come and after each matching. Where a matching has
        a gauge, ``distance_to_anchor_in_gauge`` is that of the unmatched models in it.
        """
        barriers = [
            Row((c.anchor, c.source), NO_METHOD, c.matching, c.data_set, c.domain, "barrier", c.barrier)
            for c in self.curves
        ]
        distances = []
        for pair, totals in by_pair(self.total_distances()).items():
            # Every matching starts from the same two models, so the first one tells how far apart they come.
            distances.append(_distance_row(pair, UNMATCHED, DISTANCE, totals[0].given))
            for total in totals:
                if total.as_given is not None:
                    distances.append(_distance_row(pair, total.matching, DISTANCE_IN_GAUGE, total.before))
                distances.append(_distance_row(pair, total.matching, DISTANCE, total.after))
        return [*self.rows, *barriers, *distances]

    def total_distances(self) -> list[TotalDistance]:
        """Distances of whole models, by pair in order of appearance and then by matching."""
        parts: dict[tuple[str, str], dict[str, list[Distance]]] = {}
        for d in self.distances:
            parts.setdefault((d.anchor, d.source), {}).setdefault(d.matching, []).append(d)
        return [TotalDistance.of(found) for matchings in parts.values() for found in matchings.values()]

    def comparison_rows(self) -> list[tuple[Row, dict[str, float | int | None]]]:
        """A row for each comparison: its difference, named ``<metric>_change``, and what is beside it.

        Beside it stand ``lower`` and ``upper``, the ends of the 95 % interval, ``examples`` and ``draws``. The data set
        is None for a mean over those of a domain.
        """
        return [
            (
                Row(c.models, c.method, c.matching, c.data_set, c.domain, f"{c.metric}_change", c.difference),
                {"lower": c.lower, "upper": c.upper, "examples": c.examples, "draws": c.draws},
            )
            for c in self.comparisons
        ]

    def to_json(self) -> str:
        """All rows as a JSON list of objects; numbers that are not finite become null, which JSON has no word for.

        Rows of comparisons come last and have fields of their own, see `comparison_rows`.
        """
        found = [*((row, {}) for row in self.all_rows()), *self.comparison_rows()]
        rows = [
            asdict(row) | {"value": _finite_or_none(row.value), "seconds": _finite_or_none(row.seconds)} | beside
            for row, beside in found
        ]
        return json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def to_csv(self) -> str:
        """All rows as CSV with a header; model names are joined by ``" + "``, an absent value is an empty cell.

        The last columns are those of comparisons, see `comparison_rows`.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names, beside = [column.name for column in fields(Row)], ("lower", "upper", "examples", "draws")
        writer.writerow([*names, *beside])
        found = [*((row, {}) for row in self.all_rows()), *self.comparison_rows()]
        for row, more in found:
            cells = [getattr(row, name) for name in names] + [more.get(name) for name in beside]
            writer.writerow(" + ".join(cell) if isinstance(cell, tuple) else cell for cell in cells)
        return text.getvalue()

    def write_json(self, path: Path) -> None:
        """Write `to_json` to a file."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    def write_csv(self, path: Path) -> None:
        """Write `to_csv` to a file."""
        Path(path).write_text(self.to_csv(), encoding="utf-8")


def _distance_row(pair: tuple[str, str], matching: str, metric: str, value: float) -> Row:
    return Row(pair, NO_METHOD, matching, None, None, metric, value)


def best_merges(entries: Sequence[Entry], metric: str, values: Sequence[float | None]) -> frozenset[int]:
    """The merge with the best value of a metric, as it is shown; empty where several have it, or there is but one."""
    known = {
        index: value
        for index, (entry, value) in enumerate(zip(entries, values, strict=True))
        if entry.is_merge and value is not None and math.isfinite(value)
    }
    if len(known) < 2:
        return frozenset()
    best = (min if lower_is_better(metric) else max)(known.values())
    winners = frozenset(i for i, value in known.items() if format_value(metric, value) == format_value(metric, best))
    return winners if len(winners) == 1 else frozenset()


def main_columns(table: Table) -> list[Column]:
    """The metric of each data set to look at first: accuracy, else a fraction, else anything but the loss."""

    def rank(column: Column) -> tuple[bool, bool, bool, bool]:
        metric = column.metric
        return ("accuracy" not in metric, not is_fraction(metric), lower_is_better(metric), metric == "loss")

    places = dict.fromkeys((column.domain, column.data_set) for column in table.columns)
    return [min((c for c in table.columns if (c.domain, c.data_set) == place), key=rank) for place in places]


def _unique(items: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(items))


def _finite_or_none(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value
