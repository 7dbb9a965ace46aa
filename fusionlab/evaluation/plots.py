"""Figures that show whether matching helped: along the line, by layer, and as accuracy of the merges."""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fusionlab.evaluation.distances import Distance, TotalDistance, by_gauge
from fusionlab.evaluation.drawing import (
    END_MODEL_COLOUR,
    INK,
    UNMATCHED_COLOUR,
    Style,
    legend,
    panel_title,
    panels,
    plain,
    styles,
    title,
)
from fusionlab.evaluation.results import UNMATCHED, Column, Curve, Entry, Results, Table, main_columns
from fusionlab.evaluation.wording import (
    file_name,
    format_change,
    format_value,
    gauge_label,
    is_fraction,
    matching_label,
    metric_heading,
    metric_label,
    models_label,
    place_label,
)


@dataclass(frozen=True)
class Plot:
    """A figure with its file name (no suffix), a title that says what is seen, and what to look for in it.

    `kind` is ``"scores"``, ``"line"`` or ``"distance"``.
    """

    kind: str
    name: str
    figure: Figure
    title: str
    caption: str


def plots(results: Results, stacked: bool = False) -> list[Plot]:
    """All figures that the results have data for.

    Args:
        results: what to draw.
        stacked: panels below each other, for narrow screens, instead of side by side.
    """
    look = styles(results)
    drawn: list[Plot] = []
    if any(entry.is_merge for entry in results.table().entries):
        drawn.append(_scores_plot(results, look, stacked))
    for anchor, source, data_set in dict.fromkeys((c.anchor, c.source, c.data_set) for c in results.curves):
        curves = [c for c in results.curves if (c.anchor, c.source, c.data_set) == (anchor, source, data_set)]
        title = f"From {anchor} to {source} on {data_set}"
        drawn.append(
            Plot(
                "line",
                file_name("line", data_set, anchor, source),
                line_figure(curves, look, stacked),
                title,
                "Every point is a weighted mean of the two models' weights: the anchor at 0, the other model at 1, "
                "their plain average half way. A good matching keeps the line flat, close to the dashed one; a hump "
                "in the loss is the barrier. Both ends stay where they are, because matching does not change what "
                "a model computes.",
            )
        )
    for anchor, source in dict.fromkeys((d.anchor, d.source) for d in results.distances):
        distances = [d for d in results.distances if (d.anchor, d.source) == (anchor, source)]
        drawn.append(
            Plot(
                "distance",
                file_name("distance", anchor, source),
                distance_figure(distances, look, stacked),
                f"Distance from {source} to {anchor}, by layer",
                "Grey bars are the distances before matching; a coloured point below its bar is a layer that a "
                "matching moved closer to the anchor, a point on the bar a layer that it left where it was. A matching "
                "with a gauge starts from its own, broken bars: what the gauge alone changes is no effect of matching. "
                "Closer weights are the aim of weight matching, but not proof of a better merge: the scores decide.",
            )
        )
    return drawn


def line_figure(curves: Sequence[Curve], look: dict[str, Style], stacked: bool = False) -> Figure:
    """Loss and main metric along the straight line between two models, one line for each matching.

    Args:
        curves: curves of one pair of models on one data set, one for each matching.
        look: a style for each matching.
        stacked: the metric below the loss instead of beside it.
    """
    first = curves[0]
    figure, axes = panels(2, 1 if stacked else 2, panel_height=3.5, stacked=stacked)
    handles = []
    for panel, name in zip(axes, ("loss", first.metric), strict=True):
        scale = 100 if is_fraction(name) else 1
        for index, curve in enumerate(curves):
            values = [scale * value for value in (curve.loss if name == "loss" else curve.score)]
            style = look[curve.matching]
            # Where lines coincide, the wider ones below and the markers in turn keep all of them visible.
            apart = max(1, min(len(curves), len(values) // 4))
            (line,) = panel.plot(
                curve.positions, values, color=style.colour, linestyle=style.dash,
                linewidth=1.5 + 2.0 * (1 - (index + 1) / len(curves)), marker=style.marker, markersize=6,
                markevery=(index % apart, apart), markeredgecolor="white", markeredgewidth=0.6, zorder=3, clip_on=False,
            )  # fmt: skip
            if name == "loss":
                line.set_label(f"{matching_label(curve.matching)}: barrier {format_value('barrier', curve.barrier)}")
                handles.append(line)
        along = first.loss if name == "loss" else first.score
        ends = [scale * along[0], scale * along[-1]]
        (reference,) = panel.plot([0, 1], ends, color=INK, linestyle=(0, (5, 3)), linewidth=1.3, zorder=2)
        panel.set_ylabel(metric_heading(name))
        label = metric_label(name)
        panel_title(panel, f"{label[0].upper()}{label[1:]} along the line")
        panel.set_xlim(0, 1)
        panel.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "¼", "½", "¾", "1"])
        _name_ends(panel, first.anchor, first.source)
        if is_fraction(name):
            panel.set_ylim(0, 103)
    reference.set_label("level of the end models")
    title(figure, f"Between {first.anchor} and {first.source}: {place_label(first.data_set, first.domain)}")
    legend(figure, [reference, *handles], columns=1 if stacked else 2)
    return figure


@dataclass(frozen=True)
class _Start:
    """Where matchings start from: the models as they come, or in a gauge.

    Attributes:
        label: for the legend.
        matching: one that starts there.
        total: the distance of whole models.
        in_gauge: whether both models are in the matching's gauge.
        dash: of the bars.
    """

    label: str
    matching: str
    total: float
    in_gauge: bool
    dash: Any

    def length(self, distance: Distance) -> float:
        return distance.before if self.in_gauge else distance.given


def _starts(totals: Sequence[TotalDistance]) -> list[_Start]:
    """The models as they come, then in each gauge."""
    first = totals[0]
    found = [_Start(matching_label(UNMATCHED), first.matching, first.given, False, "solid")]
    for index, gauge in enumerate(by_gauge(totals)):
        label = gauge_label([total.matching for total in gauge])
        found.append(_Start(label, gauge[0].matching, gauge[0].before, True, (0, (2.0, 0.6 + 0.6 * index))))
    return found


def distance_figure(distances: Sequence[Distance], look: dict[str, Style], stacked: bool = False) -> Figure:
    """Distance to the anchor by layer, one panel for each role, before matching and after each matching.

    Args:
        distances: distances between one pair of models.
        look: a style for each matching.
        stacked: one panel in a row instead of up to three.
    """
    # What lies in no layer is one number, for the table; it is a panel only where nothing else is known.
    layered = [d for d in distances if d.layer is not None]
    roles = list(dict.fromkeys(d.role for d in layered or distances))
    totals = Results("", (), distances=list(distances)).total_distances()
    starts, matchings = _starts(totals), [total.matching for total in totals]
    across = 1 if stacked else 2 if len(roles) == 4 else min(3, len(roles))
    figure, axes = panels(len(roles), across, panel_height=2.9, stacked=stacked)
    for panel, role in zip(axes, roles, strict=True):
        found = [d for d in distances if d.role == role]
        # Parameters outside all layers stand left of layer 0.
        layers = sorted({-1 if d.layer is None else d.layer for d in found})
        for start in starts:
            known = {-1 if d.layer is None else d.layer: start.length(d) for d in found if d.matching == start.matching}
            panel.hlines(
                list(known.values()), [x - 0.42 for x in known], [x + 0.42 for x in known],
                color=UNMATCHED_COLOUR, linewidth=2.2, linestyle=start.dash, zorder=2,
            )  # fmt: skip
        size = max(3.0, min(7.0, 240 / (len(layers) * max(1, len(matchings)))))
        for index, matching in enumerate(matchings):
            # Matchings often agree exactly; moved apart a little sideways, none hides another.
            shift = (index - (len(matchings) - 1) / 2) * min(0.12, 0.76 / len(matchings))
            after = {-1 if d.layer is None else d.layer: d.after for d in found if d.matching == matching}
            panel.plot(
                [layer + shift for layer in after], list(after.values()), color=look[matching].colour,
                linestyle="none", marker=look[matching].marker, markersize=size, markeredgecolor="white",
                markeredgewidth=0.5 if size > 5 else 0, zorder=3,
            )  # fmt: skip
        panel_title(panel, role)
        panel.set_xlabel("layer")
        panel.set_ylabel("distance to the anchor")
        step = max(1, len(layers) // 12)
        panel.set_xticks(layers[::step], ["none" if layer < 0 else str(layer) for layer in layers[::step]])
        panel.set_xlim(layers[0] - 0.6, layers[-1] + 0.6)
        _keep_small_changes_small(panel)
    handles = []
    for start in starts:
        label = f"{start.label}: total {format_value('distance', start.total)}"
        handles.append(Line2D([], [], color=UNMATCHED_COLOUR, linewidth=2.2, linestyle=start.dash, label=label))
    for total in totals:
        change = format_change(total.before, total.after)
        label = f"{total.matching}: total {format_value('distance', total.after)} ({change})"
        style = look[total.matching]
        handles.append(
            Line2D([], [], color=style.colour, linestyle="none", marker=style.marker, markersize=7, label=label)
        )
    title(figure, f"Distance from {distances[0].source} to {distances[0].anchor}, by layer")
    legend(figure, handles, columns=1 if stacked else 2)
    return figure


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
    labels = [textwrap.fill(entry_label(e, table, results.models), 30) for e in entries]
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
            panel.barh(height, length, height=0.72, color=colour, zorder=3)
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
    title(figure, _scores_title(columns))
    return figure


def _scores_plot(results: Results, look: dict[str, Style], stacked: bool) -> Plot:
    columns = main_columns(results.table())
    return Plot(
        "scores",
        file_name("_".join(dict.fromkeys(column.metric for column in columns))),
        scores_figure(results, look, stacked),
        _scores_title(columns),
        "Light grey bars are the end models, the level that a perfect merge would keep. Compare the merges with the "
        "unmatched one in dark grey: what a matching adds is the difference between the two.",
    )


def _scores_title(columns: Sequence[Column]) -> str:
    words = f"{', '.join(dict.fromkeys(metric_label(column.metric) for column in columns))} of end models and merges"
    return words[0].upper() + words[1:]


def entry_label(entry: Entry, table: Table, all_models: tuple[str, ...]) -> str:
    """What a line of a table is called: a merge by what tells it from the other merges there.

    Args:
        entry: one of the table's.
        table: that it is in.
        all_models: names of all end models.
    """
    if not entry.is_merge:
        return entry.name
    merges = [other for other in table.entries if other.is_merge]
    parts = [matching_label(entry.matching)]
    if len({other.method for other in merges}) > 1:
        parts.insert(0, entry.method)
    if len({other.models for other in merges}) > 1:
        parts.insert(0, models_label(entry.models, all_models))
    return ": ".join(parts)


def _new_group(entries: Sequence[Entry], index: int) -> bool:
    here, before = entries[index], entries[index - 1]
    return (here.is_merge, here.method, here.is_merge and here.models) != (
        before.is_merge, before.method, before.is_merge and before.models,
    )  # fmt: skip


def _name_ends(panel: Axes, anchor: str, source: str) -> None:
    """Write the models' names under the two ends of the line, each growing inwards so that they cannot collide."""
    for position, name, side in ((0.0, f"{anchor}\n(anchor)", "left"), (1.0, source, "right")):
        lines = "\n".join(textwrap.fill(part, 20) for part in name.split("\n"))
        panel.annotate(
            plain(lines), (position, 0), xycoords="axes fraction", xytext=(0, -20),
            textcoords="offset points", ha=side, va="top", fontsize=10.5, color=INK,
        )  # fmt: skip


def _keep_small_changes_small(panel: Axes) -> None:
    """Widen the vertical range to a fifth of the level, so that a change of 0.1 percent does not fill the panel."""
    low, high = panel.get_ylim()
    least = 0.2 * max(abs(low), abs(high))
    if high - low < least:
        middle = (low + high) / 2
        panel.set_ylim(middle - least / 2, middle + least / 2)
