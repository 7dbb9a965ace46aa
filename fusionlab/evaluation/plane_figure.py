"""The figure of the loss on the plane through three models, one panel for each matching."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fusionlab.evaluation.drawing import GRID, MUTED, panel_title, panels, plain, title
from fusionlab.evaluation.plane import Plane
from fusionlab.evaluation.wording import format_value, matching_label, place_label

# On the colours of the surface, which stay as they are in dark mode.
_ON_SURFACE, _EDGE = "#fcfcfc", "#101418"
_LEVELS, _TICKS = 24, 8


def plane_figure(planes: Sequence[Plane], stacked: bool = False) -> Figure:
    """The surfaces of three models on one data set, in one scale of colours; yellow is a low loss.

    Args:
        planes: one for each matching, of the same models and data set.
        stacked: panels below each other, for narrow screens.
    """
    first = planes[0]
    # Far outside the loss has no bounds: what is above every model and mean by a half is one colour.
    marked = [loss for plane in planes for loss in (*plane.at_corners, plane.at_mean)]
    known = [loss for plane in planes for row in plane.loss for loss in row if math.isfinite(loss)] or [0.0]
    low, high = min(known), max(filter(math.isfinite, marked), default=max(known))
    top = high + 0.5 * max(high - low, 1e-6 * max(abs(low), 1.0))
    levels = np.linspace(low, top, _LEVELS + 1)
    across = 1 if stacked else min(2, len(planes))
    figure, axes = panels(len(planes), across, 4.2 if stacked else 3.9, stacked)
    for panel, plane in zip(axes, planes, strict=True):
        values = np.nan_to_num(np.asarray(plane.loss), nan=top, posinf=top, neginf=low).clip(low, top)
        filled = panel.contourf(plane.across, plane.upwards, values, levels=levels, cmap="viridis_r", zorder=1)
        panel.grid(visible=False)
        panel.set_aspect("equal")
        panel.set_xlabel("distance in weight space")
        panel_title(panel, f"{matching_label(plane.matching)}: mean {format_value('loss', plane.at_mean)}")
        _mark(panel, plane)
    # So many decimals that no two ticks read alike, however little the losses differ.
    decimals = max(0, -math.floor(math.log10((top - low) / _TICKS)))
    bar = figure.colorbar(filled, ax=axes, shrink=0.8, format=f"%.{decimals}f")
    bar.set_label("loss", color=MUTED, fontsize=10.5)
    bar.ax.tick_params(labelsize=10, labelcolor=MUTED, color=GRID)
    bar.outline.set_visible(False)
    title(figure, f"The plane of {', '.join(first.models)}: {place_label(first.data_set, first.domain)}")
    return figure


def _mark(panel: Axes, plane: Plane) -> None:
    """The models with their names, their triangle, and their mean."""
    closed = [*plane.corners, plane.corners[0]]
    panel.plot(*zip(*closed, strict=True), color=_ON_SURFACE, linewidth=1, linestyle=(0, (4, 3)), zorder=2)
    middle = plane.mean
    for name, point in zip((*plane.models, "mean"), (*plane.corners, middle), strict=True):
        marker, size = ("*", 13) if name == "mean" and point == middle else ("o", 8)
        panel.plot(
            *point, marker=marker, markersize=size, color=_ON_SURFACE, markeredgecolor=_EDGE, linestyle="none", zorder=3
        )
        panel.annotate(
            plain(name), point, xytext=(0, 9), textcoords="offset points", ha="center", fontsize=10, color=_EDGE,
            bbox={"boxstyle": "round,pad=0.15", "facecolor": _ON_SURFACE, "edgecolor": "none", "alpha": 0.85}, zorder=4,
        )  # fmt: skip
