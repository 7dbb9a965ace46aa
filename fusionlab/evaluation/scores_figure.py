"""The figure of the main metric of end models and merges on every data set."""

import math
import textwrap
from collections.abc import Sequence

from matplotlib.figure import Figure

from fusionlab.evaluation.drawing import END_MODEL_COLOUR, INK, Style, panel_title, panels, plain, title
from fusionlab.evaluation.metrics import is_fraction
from fusionlab.evaluation.results import Column, Entry, Results, main_columns
from fusionlab.evaluation.wording import format_value, metric_heading, metric_label, place_label


def scores_figure(results: Results, look: dict[str, Style], stacked: bool = False) -> Figure:
    """Bars of the main metric of every data set: end models, unmatched merges, matched merges.

    Args:
        results: must hold at least one row.
        look: a style for each matching.
        stacked: one panel in a row instead of up to three.
    """
    table = results.table()
    columns = main_columns(table)
    entries = [e for e in table.entries if any(e.values[table.columns.index(column)] is not None for column in columns)]
    labels = [textwrap.fill(table.label(e, results.models), 30) for e in entries]
    across = 1 if stacked else 2 if len(columns) == 4 else min(3, len(columns))
    lines = sum(max(1, label.count("\n") + 1) for label in labels)
    figure, axes = panels(len(columns), across, panel_height=1.2 + 0.3 * lines, stacked=stacked, sharey=not stacked)
    heights = [-index - 0.5 * sum(_new_group(entries, i) for i in range(1, index + 1)) for index in range(len(entries))]
    for panel, column in zip(axes, columns, strict=True):
        scale = 100 if is_fraction(column.metric) else 1
        values = [entry.values[table.columns.index(column)] for entry in entries]
        lengths = [scale * value if value is not None and math.isfinite(value) else 0.0 for value in values]
        limit = 100 if is_fraction(column.metric) else max(map(abs, lengths)) or 1.0
        for height, length, value, entry in zip(heights, lengths, values, entries, strict=True):
            colour = look[entry.matching].colour if entry.matching in look else END_MODEL_COLOUR
            panel.barh(height, length, height=0.72, color=colour)
            panel.text(
                max(length, 0) + 0.015 * limit, height, format_value(column.metric, value), va="center_baseline",
                fontsize=10, color=INK,
            )  # fmt: skip
        panel.set_xlim(min(0.0, *lengths), 1.17 * limit)
        if is_fraction(column.metric):
            panel.set_xticks([0, 25, 50, 75, 100])
        panel.set_ylim(heights[-1] - 0.6, 0.6)
        panel.set_yticks(heights, [plain(label) for label in labels])
        panel.tick_params(axis="y", length=0)
        panel.grid(visible=False, axis="y")
        panel.spines["left"].set_visible(False)
        panel_title(panel, place_label(column.data_set, column.domain))
        panel.set_xlabel(metric_heading(column.metric))
    title(figure, scores_title(columns))
    return figure


def scores_title(columns: Sequence[Column]) -> str:
    """The title of the figure: ``"Accuracy of end models and merges"``."""
    words = f"{', '.join(dict.fromkeys(metric_label(column.metric) for column in columns))} of end models and merges"
    return words[0].upper() + words[1:]


def _new_group(entries: Sequence[Entry], index: int) -> bool:
    here, before = entries[index], entries[index - 1]
    return (here.is_merge, here.method, here.is_merge and here.models) != (
        before.is_merge, before.method, before.is_merge and before.models,
    )  # fmt: skip
