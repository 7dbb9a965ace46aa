"""Figures as SVG inside a page: its fonts, its colours in light and dark mode, and no names that clash."""

import io
import re

import matplotlib as mpl
from matplotlib.figure import Figure

from fusionlab.evaluation.drawing import COLOURS, END_MODEL_COLOUR, GRID, INK, MUTED, SPINE, UNMATCHED_COLOUR

# Colours of figures, and the properties of the page (report.css) that stand for them in both modes.
_PROPERTIES = {
    INK: "--ink", MUTED: "--muted", GRID: "--line", SPINE: "--line", "#ffffff": "--card",
    END_MODEL_COLOUR: "--end-model", UNMATCHED_COLOUR: "--unmatched",
    **{colour: f"--tone-{index}" for index, colour in enumerate(COLOURS)},
}  # fmt: skip
# Beside the drawing: the head of a file, comments, metadata, a style sheet, sizes in points.
_LEFT_OUT = re.compile(
    r"^.*?(?=<svg)|<!--.*?-->|<metadata>.*?</metadata>|<style[^>]*>.*?</style>|<title>.*?</title>", re.DOTALL
)


def svg(figure: Figure, name: str) -> str:
    """A figure as an ``<svg>`` element, the same text for the same figure.

    Args:
        figure: drawn in the colours of `fusionlab.evaluation.drawing`; others stay as they are.
        name: of it, different for each figure of a page; names inside begin with it.

    Returns:
        Markup; text in it is escaped. It is as wide as there is room for.
    """
    stream = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(stream, format="svg", facecolor="none", metadata={"Date": None})
    text = _LEFT_OUT.sub("", stream.getvalue())
    head, rest = text.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)
    own = re.sub(r"\W", "-", name)
    rest = re.sub(r'\bid="', f'id="{own}-', rest)
    rest = re.sub(r'xlink:href="#', f'href="#{own}-', rest).replace("url(#", f"url(#{own}-")
    for colour, value in _PROPERTIES.items():
        rest = rest.replace(colour, f"var({value})")
    return f'<svg {box.group() if box else ""} aria-hidden="true">{rest.strip()}'


def width_of(figure: Figure) -> int:
    """The width in CSS pixels at which a figure's letters are as large as the page's."""
    return round(96 * float(figure.get_figwidth()))
