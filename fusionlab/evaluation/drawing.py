"""The one calm style of all figures: colours, panels, titles, legends."""

import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from fusionlab.evaluation.results import UNMATCHED, Results

DPI = 150
INK = "#22272e"
MUTED = "#5b6470"
GRID = "#e3e6ea"
SPINE = "#c9ced6"
END_MODEL_COLOUR = "#c3c9d1"
UNMATCHED_COLOUR = "#6b7280"
# Okabe and Ito's palette without its yellow and black, then dark tones of Paul Tol's "muted": told apart by
# people with any kind of colour vision, and each matching has a marker of its own besides.
COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255", "#999933", "#332288", "#117733",
)  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "h")


@dataclass(frozen=True)
class Style:
    """Colour, marker and dash of one matching, the same in every figure."""

    colour: str
    marker: str
    dash: str | tuple[float, tuple[float, ...]]


def styles(results: Results) -> dict[str, Style]:
    """One style for each matching of the results; past ten matchings colours repeat with a broken line."""
    found = {UNMATCHED: Style(UNMATCHED_COLOUR, "o", "solid")}
    for index, matching in enumerate(matching for matching in results.matchings if matching != UNMATCHED):
        turn, place = divmod(index, len(COLOURS))
        found[matching] = Style(COLOURS[place], MARKERS[place], "solid" if turn == 0 else (0.0, (4.0, 1.0 + turn)))
    return found


def panels(
    count: int, across: int, panel_height: float, stacked: bool, sharey: bool = False
) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels, `across` in a row, in one calm style; sizes in inches, narrow if `stacked`."""
    down = -(-count // across)
    width = 5.6 if stacked else {1: 8.0, 2: 10.0, 3: 12.0}[across]
    figure = Figure(figsize=(width, down * panel_height + 0.6), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1))
    grid = figure.subplots(down, across, squeeze=False, sharey=sharey).flatten()
    for panel in grid[count:]:
        panel.remove()
    for panel in grid[:count]:
        panel.grid(color=GRID, linewidth=0.8, zorder=0)
        panel.set_axisbelow(True)
        panel.tick_params(labelsize=10, labelcolor=MUTED, color=GRID)
        panel.xaxis.label.set(size=10.5, color=MUTED)
        panel.yaxis.label.set(size=10.5, color=MUTED)
        for side, spine in panel.spines.items():
            spine.set_visible(side in ("left", "bottom"))
            spine.set_color(SPINE)
    return figure, list(grid[:count])


def title(figure: Figure, text: str) -> None:
    """Write a figure's title at its upper left."""
    wrapped = plain(textwrap.fill(text, int(8 * figure.get_figwidth())))
    figure.suptitle(wrapped, x=0.012, ha="left", fontsize=13.5, fontweight="bold", color=INK)


def panel_title(panel: Axes, text: str) -> None:
    """Write a panel's title at its upper left."""
    panel.set_title(plain(textwrap.fill(text, 40)), fontsize=11.5, color=INK, loc="left", pad=8)


def legend(figure: Figure, handles: Sequence[Line2D], columns: int) -> None:
    """Write the labels of `handles` below all panels, where they cover nothing however many there are."""
    # A letter of this size is about 0.088 inches wide, a line 0.17 inches high.
    letters = int((figure.get_figwidth() / columns - 0.75) / 0.088)
    labels = [plain(textwrap.fill(str(handle.get_label()), letters)) for handle in handles]
    lines = [label.count("\n") + 1 for label in labels]
    down = -(-len(labels) // columns)
    highest = max(sum(lines[start : start + down]) for start in range(0, len(lines), down))
    figure.set_figheight(figure.get_figheight() + 0.17 * highest + 0.07 * down + 0.3)
    figure.legend(
        handles, labels, loc="outside lower left", ncols=columns, frameon=False, fontsize=10.5, labelcolor=INK,
        handlelength=2.4, columnspacing=2.5,
    )  # fmt: skip


def plain(text: str) -> str:
    """Text that matplotlib does not read as mathematics."""
    return text.replace("$", r"\$")


def png(figure: Figure) -> bytes:
    """A figure as the bytes of a PNG file, the same bytes for the same figure.

    Where everything stands is found here; drawn again in any form, the figure keeps it.
    """
    FigureCanvasAgg(figure)
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
    # Finding it takes longer than drawing.
    figure.set_layout_engine("none")
    return stream.getvalue()
