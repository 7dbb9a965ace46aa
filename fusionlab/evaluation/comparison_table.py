"""The effect of matching as lines of a table: one for each method, matching and place, with its interval."""

from __future__ import annotations

from fusionlab.evaluation.claims import Claim
from fusionlab.evaluation.comparison import Comparison, GroupComparison
from fusionlab.evaluation.metrics import is_fraction
from fusionlab.evaluation.results import Results, main_columns
from fusionlab.evaluation.wording import (
    domain_label,
    format_difference,
    format_value,
    metric_label,
    models_label,
    place_label,
    shown_decimals,
)

HEADS = (
    "models", "data set", "metric", "method", "matching", "unmatched", "matched", "change", "95 % interval", "of",
)  # fmt: skip
# Columns that are words; the others are numbers.
TEXTS = 5
EXPLAINED = (
    "The change is that of the same method, matched minus unmatched, on the same test examples. The interval says how "
    "far it would move on other examples of the same kind: the examples are drawn anew, with replacement, 1,000 times, "
    "for both alike. Above 0 a higher score is beyond chance, below 0 a lower one; where it holds 0 the "
    "examples show no difference, and its ends say how large one could still be. It knows nothing of other end models, "
    "seeds or data sets."
)
EXPLAINED_GROUPS = (
    "Over groups the change is the mean over groups and seeds, and the interval is over clusters of groups that share "
    "no end model. With fewer than six such clusters there is none: the smallest and the largest change then only "
    "describe these groups."
)


def comparison_lines(results: Results, every: bool = False) -> list[tuple[str, ...]]:
    """One line for each comparison, in the columns `HEADS`; the mean over the data sets of a domain last.

    Args:
        results: what was measured.
        every: by every metric; by the main one of each data set otherwise.
    """
    columns = main_columns(results.table())
    main = {(column.domain, column.data_set, column.metric) for column in columns}
    main |= {(column.domain, None, column.metric) for column in columns}
    found = [c for c in results.comparisons if every or (c.domain, c.data_set, c.metric) in main]
    return [_line(results, c) for c in found]


def group_lines(results: Results) -> list[tuple[str, ...]]:
    """The same over the groups of a grid; smallest and largest change where there is no interval."""
    return [_line(results, c) for c in results.overall]


def _line(results: Results, found: Comparison | GroupComparison) -> tuple[str, ...]:
    claim, metric = Claim(found), found.metric
    decimals = shown_decimals(metric, found.unmatched, found.matched)
    if isinstance(found, GroupComparison):
        models, place = "all groups", domain_label(found.domain)
        ends = f"none; {_span(metric, found.smallest, found.largest, decimals)}"
        of = claim.units
    else:
        models = models_label(found.models, results.models)
        place = place_label(found.data_set, found.domain)
        if found.data_set is None:
            place = f"mean of {found.data_sets}, {domain_label(found.domain)}"
        ends, of = "none", claim.units
    if found.lower is not None and found.upper is not None:
        ends = _span(metric, found.lower, found.upper, decimals)
    unit = " (%)" if is_fraction(metric) else ""
    return (
        models, place, f"{metric_label(metric)}{unit}", found.method, found.matching,
        format_value(metric, found.unmatched), format_value(metric, found.matched),
        format_difference(metric, found.difference, decimals), ends, of,
    )  # fmt: skip


def _span(metric: str, lower: float, upper: float, decimals: int) -> str:
    return f"{format_difference(metric, lower, decimals)} to {format_difference(metric, upper, decimals)}"
