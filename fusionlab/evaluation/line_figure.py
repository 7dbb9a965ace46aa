"""The figure of loss and main metric along the line between two models."""

import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fusionlab.evaluation.curves import Curve
from fusionlab.evaluation.drawing import INK, Style, legend, panel_title, panels, plain, title
from fusionlab.evaluation.metrics import is_fraction
from fusionlab.evaluation.wording import format_value, matching_label, metric_heading, metric_label, place_label


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
        (reference,) = panel.plot([0, 1], ends, color=INK, linestyle=(0, (5, 3)), linewidth=1.3)
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


def _name_ends(panel: Axes, anchor: str, source: str) -> None:
    """Write the models' names under the two ends of the line, each growing inwards so that they cannot collide."""
    for position, name, side in ((0.0, f"{anchor}\n(anchor)", "left"), (1.0, source, "right")):
        lines = "\n".join(textwrap.fill(part, 20) for part in name.split("\n"))
        panel.annotate(
            plain(lines), (position, 0), xycoords="axes fraction", xytext=(0, -20),
            textcoords="offset points", ha=side, va="top", fontsize=10.5, color=INK,
        )  # fmt: skip
