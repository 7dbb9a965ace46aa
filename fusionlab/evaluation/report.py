"""The results of a run for people: a folder with a page, pictures and data, and a table for the terminal."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from rich.table import Table as ConsoleTable
from rich.text import Text

from fusionlab.evaluation.inline import svg, width_of
from fusionlab.evaluation.page import Picture, page
from fusionlab.evaluation.plots import Plot, plots
from fusionlab.evaluation.results import Column, Entry, Results, Table, best_merges, main_columns
from fusionlab.evaluation.verdict import verdict
from fusionlab.evaluation.wording import (
    domain_label,
    format_change,
    format_value,
    matching_label,
    metric_heading,
)

# The method whose merges lie on the straight line between the models.
PLAIN_MEAN = "simple"


def write_report(results: Results, folder: Path, drawn: Sequence[Plot] | None = None) -> Path:
    """Write ``results.json``, ``results.csv``, ``plots/*.png`` and the self-contained ``report.html``.

    Args:
        results: what was measured.
        folder: made if it is not there; files of the same names are replaced.
        drawn: the figures of the results; drawn here if None.

    Returns:
        The path of the page.
    """
    folder = Path(folder)
    (folder / "plots").mkdir(parents=True, exist_ok=True)
    results.write_json(folder / "results.json")
    results.write_csv(folder / "results.csv")
    pictures: list[Picture] = []
    for wide, narrow in zip(plots(results) if drawn is None else drawn, plots(results, stacked=True), strict=True):
        (folder / "plots" / f"{wide.name}.png").write_bytes(wide.png)
        both = [svg(plot.figure, f"{kind}-{len(pictures)}") for kind, plot in (("wide", wide), ("narrow", narrow))]
        widths = width_of(wide.figure), width_of(narrow.figure)
        pictures.append(Picture(both[0], both[1], widths, wide.title, wide.caption, wide.told, wide.kind))
    path = folder / "report.html"
    path.write_text(page(results, verdict(results), pictures), encoding="utf-8")
    return path


def console_table(results: Results) -> ConsoleTable:
    """The few numbers that matter, readable in a terminal that is 80 characters wide.

    One line for each end model and merge; the main metric of each data set (means over each domain past three data
    sets), and the barrier where one was measured, beside the plain means, which lie on its line; without plain means it
    stands below. The best merge in each column is bold and has a star. Without scores, the distances before and after
    each matching.

    Args:
        results: what was measured.
    """
    table = results.table()
    if not table.entries:
        return _distance_table(results)
    groups = _column_groups(table)
    values = [[_mean(entry, [table.columns.index(c) for c in group]) for entry in table.entries] for _, group in groups]
    metrics = [group[0].metric for _, group in groups]
    heads = [head for head, _ in groups]
    barriers = _barriers(results, table.entries)
    if any(barrier is not None for barrier in barriers):
        heads, metrics, values = [*heads, "barrier"], [*metrics, "barrier"], [*values, barriers]
    best = [best_merges(table.entries, metric, column) for metric, column in zip(metrics, values, strict=True)]
    console = ConsoleTable(title=Text(results.title), title_justify="left", title_style="bold", expand=False)
    console.add_column("end model or merge", overflow="fold", min_width=18)
    for head in heads:
        console.add_column(Text(head), justify="right", overflow="fold")
    for index, entry in enumerate(table.entries):
        cells = []
        for metric, column, winners in zip(metrics, values, best, strict=True):
            shown = "" if column[index] is None else format_value(metric, column[index])
            cells.append(Text(f"{shown} *", style="bold") if index in winners else Text(f"{shown}  "))
        name = Text(table.label(entry, results.models), style="" if entry.is_merge else "dim")
        last_end = not entry.is_merge and table.entries[index + 1 : index + 2] and table.entries[index + 1].is_merge
        console.add_row(name, *cells, end_section=bool(last_end))
    captions = ["* best merge in its column"] if any(best) else []
    if results.curves and all(barrier is None for barrier in barriers):
        told = (f"{matching_label(key)} {format_value('barrier', value)}" for key, value in _of_lines(results).items())
        captions.append(f"barrier of the straight line between the models: {', '.join(told)}")
    if captions:
        console.caption = Text("\n".join(captions))
        console.caption_justify = "left"
    return console


def _column_groups(table: Table) -> list[tuple[str, list[Column]]]:
    columns = main_columns(table)
    if len(columns) <= 3:
        return [
            ("\n".join(filter(None, (c.data_set, domain_label(c.domain), metric_heading(c.metric)))), [c])
            for c in columns
        ]
    groups: dict[tuple[str | None, str], list[Column]] = {}
    for column in columns:
        groups.setdefault((column.domain, column.metric), []).append(column)
    return [
        (
            "\n".join(filter(None, (domain_label(domain), f"mean of {len(group)}", metric_heading(metric)))), group
        )
        for (domain, metric), group in groups.items()
    ]  # fmt: skip


def _mean(entry: Entry, indices: Sequence[int]) -> float | None:
    values = [value for index in indices if (value := entry.values[index]) is not None]
    # A mean over a part of the data sets would be compared with means over all of them.
    return fmean(values) if values and len(values) == len(indices) else None


def _of_lines(results: Results) -> dict[str, float]:
    """The mean barrier over all measured lines by matching."""
    return {
        matching: fmean(curve.barrier for curve in results.curves if curve.matching == matching)
        for matching in dict.fromkeys(curve.matching for curve in results.curves)
    }


def _barriers(results: Results, entries: Sequence[Entry]) -> list[float | None]:
    """The barrier for each plain mean, which lies on the line; no other method's merge does."""
    found = _of_lines(results)
    return [found.get(entry.matching) if entry.method == PLAIN_MEAN else None for entry in entries]


def _distance_table(results: Results) -> ConsoleTable:
    console = ConsoleTable(title=Text(results.title), title_justify="left", title_style="bold")
    console.add_column("model to anchor", overflow="fold")
    console.add_column("matching", overflow="fold")
    totals = results.total_distances()
    gauged = any(total.as_given is not None for total in totals)
    for head in ("distance as given", *(["in one gauge"] if gauged else []), "matched", "change by matching"):
        console.add_column(head, justify="right")
    for total in totals:
        lengths = (total.given, *([total.before] if gauged else []), total.after)
        console.add_row(
            Text(f"{total.source} to {total.anchor}"), Text(total.matching),
            *(format_value("distance", length) for length in lengths), format_change(total.before, total.after),
        )  # fmt: skip
    return console
