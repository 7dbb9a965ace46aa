"""Shares of each task that a merge keeps: its scores beside those of the model that knows the task best."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean

from fusionlab.evaluation.metrics import is_fraction, lower_is_better
from fusionlab.evaluation.results import END_MODEL, Results, main_columns
from fusionlab.evaluation.rows import REFERENCES
from fusionlab.evaluation.wording import format_value, listing, merge_name, metric_label

# Of a share, as many as its percentage is told with, and two more.
SHARE_DECIMALS = 3


@dataclass(frozen=True)
class Kept:
    """One task.

    Attributes:
        data_set: its test set, in domain.
        metric: the main one, a fraction of which more is better.
        own: the best end model's score, above 0.
        merge: the score of the merge that is kept.
    """

    data_set: str
    metric: str
    own: float
    merge: float

    @property
    def share(self) -> float:
        """The merge's score as a share of the end model's; above 1 where it is better."""
        return self.merge / self.own


def kept_of_tasks(results: Results) -> list[Kept]:
    """The share of every task that the merge to keep has, in the order of the test sets in domain.

    Tasks whose main metric is no fraction (a loss), or where no end model scores above 0, have no share and are left
    out.
    """
    table, found = results.table(), list[Kept]()
    for column in main_columns(table):
        if column.domain != "in" or column.data_set is None:
            continue
        if not is_fraction(column.metric) or lower_is_better(column.metric):
            continue
        place = table.columns.index(column)
        ends = [entry.values[place] for entry in table.entries if entry.method == END_MODEL]
        merges = [entry.values[place] for entry in table.entries if (entry.method, entry.matching) == results.kept]
        own = max((value for value in ends if value is not None and math.isfinite(value)), default=0.0)
        merge = next((value for value in merges if value is not None and math.isfinite(value)), None)
        if own > 0 and merge is not None:
            found.append(Kept(column.data_set, column.metric, own, merge))
    return found


def kept_note(results: Results) -> str:
    """A sentence on what the merge keeps of each of several tasks; empty where fewer than two have a share."""
    found = kept_of_tasks(results)
    if len(found) < 2:
        return ""
    parts = [
        f"{100 * one.share:.1f} % on {one.data_set} ({metric_label(one.metric)} {format_value(one.metric, one.merge)} "
        f"of {format_value(one.metric, one.own, unit=True)})"
        for one in found
    ]
    several = len({(row.method, row.matching) for row in results.rows if row.method not in REFERENCES}) > 1
    kept = results.kept if several else None
    merge = "the merge" if kept is None else f"the merge that is kept, {merge_name(*kept)},"
    worst = min(found, key=lambda one: one.share)
    return (
        f"Of what the best end model has on each task, {merge} keeps {listing(parts)}: "
        f"{100 * fmean(one.share for one in found):.1f} % on average, least on {worst.data_set}."
    )
