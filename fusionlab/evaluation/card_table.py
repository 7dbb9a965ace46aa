"""The table of scores for the model card of a merge."""

from fusionlab.evaluation.results import Column, Entry, Results
from fusionlab.evaluation.wording import format_value, matching_label, metric_heading, place_label


def card_table(results: Results) -> list[list[str]]:
    """The scores of the end models, of other references and of the merge that is kept, heads first.

    Args:
        results: what was measured.

    Returns:
        Lines of as many cells each, scores with their 95 % intervals where there are; empty where no merge was scored.
    """
    table, kept = results.table(), kept_entry(results)
    if kept is None:
        return []
    heads = [f"{place_label(one.data_set, one.domain)}, {metric_heading(one.metric)}" for one in table.columns]
    told = f"this merge ({kept.method}, {matching_label(kept.matching)})"
    lines = [
        [told if entry == kept else entry.name, *_cells(results, entry, table.columns)]
        for entry in table.entries
        if entry == kept or not entry.is_merge
    ]
    return [["model", *heads], *lines]


def kept_entry(results: Results) -> Entry | None:
    """The line of the merge that is kept in the table of results; None where no merge was scored.

    Args:
        results: what was measured.
    """
    merges = [one for one in results.table().entries if one.is_merge and len(one.models) == len(results.models)]
    return next((one for one in merges if (one.method, one.matching) == results.kept), next(iter(merges), None))


def _cells(results: Results, entry: Entry, columns: tuple[Column, ...]) -> list[str]:
    return [
        "" if value is None else _with_interval(results, entry, column, value)
        for column, value in zip(columns, entry.values, strict=True)
    ]


def _with_interval(results: Results, entry: Entry, column: Column, value: float) -> str:
    key = (entry.models, entry.method, entry.matching, column.data_set, column.domain, column.metric)
    for one in results.levels:
        found = (one.models, one.method, one.matching, one.data_set, one.domain, one.metric)
        if found == key and one.lower is not None and one.upper is not None:
            lower, upper = (format_value(column.metric, end) for end in (one.lower, one.upper))
            return f"{format_value(column.metric, value)} ({lower} to {upper})"
    return format_value(column.metric, value)
