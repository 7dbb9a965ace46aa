"""The figure of the distance to the anchor by layer, before matching and after each matching."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fusionlab.evaluation.distances import Distance, TotalDistance, by_gauge
from fusionlab.evaluation.drawing import UNMATCHED_COLOUR, Style, legend, panel_title, panels, title
from fusionlab.evaluation.results import UNMATCHED, Results
from fusionlab.evaluation.wording import format_change, format_value, gauge_label, matching_label


@dataclass(frozen=True)
class _Start:
    """The models before matching: as they come, or in a gauge.

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
                color=UNMATCHED_COLOUR, linewidth=2.2, linestyle=start.dash,
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


def _keep_small_changes_small(panel: Axes) -> None:
    """Widen the vertical range to a fifth of the level, so that a change of 0.1 percent does not fill the panel."""
    low, high = panel.get_ylim()
    least = 0.2 * max(abs(low), abs(high))
    if high - low < least:
        middle = (low + high) / 2
        panel.set_ylim(middle - least / 2, middle + least / 2)
