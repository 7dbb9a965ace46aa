"""Distances of one pair as maps: kinds of spaces down, layers across, before and after each matching in its gauge."""

from collections.abc import Sequence

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fusionlab.evaluation.distances import Distance
from fusionlab.evaluation.drawing import panel_title, panels, title
from fusionlab.evaluation.wording import format_value, listing, matching_label

# Of numbers on pale and on dark cells; both stay as they are in dark mode, as the cells do.
_ON_PALE, _ON_DARK = "#101418", "#fcfcfc"
# Layers from which cells are too narrow for numbers.
_NARROW = 13


def may_be_map(distances: Sequence[Distance]) -> bool:
    """True where there are several kinds of spaces in several layers, which a map shows together.

    Args:
        distances: of one pair.
    """
    layered = [d for d in distances if d.layer is not None]
    return len({d.role for d in layered}) > 1 and len({d.layer for d in layered}) > 1


def heat_figure(distances: Sequence[Distance], stacked: bool) -> Figure:
    """The maps of one pair, all in one scale of colours: before and after, both in the gauge of the matching.

    Args:
        distances: of one pair, see `may_be_map`.
        stacked: maps below each other, for narrow screens.
    """
    matchings = list(dict.fromkeys(d.matching for d in distances))
    # What a gauge alone changes is no effect of matching: matchings in the same gauge share one map of before.
    gauges: dict[tuple[float, ...], list[str]] = {}
    for matching in matchings:
        gauges.setdefault(tuple(d.before for d in distances if d.matching == matching), []).append(matching)
    shown = []
    for alike in gauges.values():
        name = "before" if len(gauges) == 1 else f"before, for {listing(alike)}"
        shown.append((name, {_place(d): d.before for d in distances if d.matching == alike[0]}))
        for matching in alike:
            found = {_place(d): d.after for d in distances if d.matching == matching}
            shown.append((matching_label(matching), found))
    roles = list(dict.fromkeys(d.role for d in distances))
    layers = sorted({d.layer for d in distances}, key=lambda layer: (layer is None, layer or 0))
    largest = max(length for _, found in shown for length in found.values()) or 1.0
    across = 1 if stacked else min(2, len(shown))
    figure, maps = panels(len(shown), across, 0.42 * len(roles) + 1.2, stacked)
    for panel, (name, found) in zip(maps, shown, strict=True):
        _draw(panel, roles, layers, found, largest)
        panel_title(panel, name)
    title(figure, f"Distance from {distances[0].source} to {distances[0].anchor}, by layer and kind of space")
    return figure


def _place(distance: Distance) -> tuple[str, int | None]:
    return distance.role, distance.layer


def _draw(
    panel: Axes,
    roles: Sequence[str],
    layers: Sequence[int | None],
    found: dict[tuple[str, int | None], float],
    largest: float,
) -> None:
    """One map; where a kind of space has nothing in a layer, there is no cell."""
    for (role, layer), length in found.items():
        x, y, share = layers.index(layer), roles.index(role), length / largest
        panel.add_patch(Rectangle((x, y), 1, 1, facecolor=colormaps["Blues"](0.08 + 0.8 * share), edgecolor="none"))
        if len(layers) < _NARROW:
            ink = _ON_DARK if share > 0.6 else _ON_PALE
            words = format_value("distance", length)
            panel.text(x + 0.5, y + 0.5, words, ha="center", va="center", fontsize=9, color=ink)
    panel.grid(visible=False)
    panel.set_xlim(0, len(layers))
    panel.set_ylim(len(roles), 0)
    step = max(1, len(layers) // 12)
    panel.set_xticks([index + 0.5 for index in range(0, len(layers), step)])
    panel.set_xticklabels(["none" if layer is None else str(layer) for layer in layers[::step]])
    panel.set_yticks([index + 0.5 for index in range(len(roles))], list(roles))
    panel.tick_params(length=0)
    panel.set_xlabel("layer")
