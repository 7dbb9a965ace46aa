"""The figure of a model's symmetry: spaces as rows, layers as columns, in each cell what may act there."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch, Rectangle

from fusionlab.evaluation.drawing import COLOURS, INK, MUTED, plain, title
from fusionlab.evaluation.symmetry_rows import legend_of, name_of_kind
from fusionlab.symmetry import Blueprint, Space

# Inches: the figure, the part of it beside the names, a line of text. Letters of size 8.5 are 0.068 wide.
WIDTH, BESIDE, LINE, LETTER, SIZE = 11.0, 7.6, 0.155, 0.068, 8.5
# Letters of a name in one line, and lines of text in one cell, at most.
NAME, MOST_LINES = 34, 4
FOLDED = ", gains folded"
# Of a cell's colour so much is white, so that what is written on it can be read.
WHITE = 0.62


@dataclass(frozen=True)
class Cell:
    """A stretch of layers with the same spaces.

    Attributes:
        start: the first column.
        end: the one after the last.
        label: of the group, which the colour stands for.
        text: what is written in it.
        lines: the same as it fits into the cell; none where it does not.
    """

    start: int
    end: int
    label: str
    text: str
    lines: tuple[str, ...] = ()


def symmetry_figure(blueprint: Blueprint, name: str) -> Figure:
    """Spaces as rows, layers as columns; the colour is that of the group, which the legend tells in words.

    A space of no layer lies across all of them. What folding gains frees has a row of its own. What does not fit into a
    cell is written under the row's name.

    Args:
        blueprint: as the model stands.
        name: of the model, for the title.
    """
    layers = max((space.layer for space in blueprint.spaces.values() if space.layer is not None), default=-1) + 1
    columns = max(1, layers)
    rows = {row: _fitted(cells, columns) for row, cells in _rows(blueprint, columns).items()}
    names = [_name_lines(row, cells) for row, cells in rows.items()]
    tall = [
        LINE * max(len(lines), *(len(cell.lines) for cell in cells)) + 0.2
        for lines, cells in zip(names, rows.values(), strict=True)
    ]
    colours = _colours(blueprint)
    words = legend_of(blueprint)
    shown = list(dict.fromkeys(cell.label for cells in rows.values() for cell in cells))
    figure = Figure(
        figsize=(WIDTH, sum(tall) + 0.2 * len(shown) + 1.3), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08)
    )
    panel = figure.subplots()
    top = 0.0
    for cells, height in zip(rows.values(), tall, strict=True):
        for cell in cells:
            _draw(panel, cell, top, height, colours[cell.label])
        top += height
    middles = [sum(tall[:index]) + height / 2 for index, height in enumerate(tall)]
    panel.set_yticks(middles, [plain("\n".join(lines)) for lines in names], fontsize=SIZE, color=INK)
    panel.set_ylim(max(top, LINE), 0)
    _draw_columns(panel, layers)
    title(figure, f"Groups that may act on the hidden spaces of {name} ({blueprint.architecture})")
    caption = "Each bar is a space, over its layers, with the group that may act there without changing the function"
    origin = f"{blueprint.origin[:1].upper()}{blueprint.origin[1:]}"
    panel.set_title(plain(f"{caption}.\n{origin}."), fontsize=9, color=MUTED, loc="left", pad=10)
    handles = [Patch(facecolor=_pale(colours[label]), label=f"{label}(n)  {words[label]}") for label in shown]
    if handles:
        figure.legend(handles=handles, loc="outside lower left", frameon=False, fontsize=9.5, labelcolor=INK)
    return figure


def _rows(blueprint: Blueprint, columns: int) -> dict[str, list[Cell]]:
    """The cells of every kind of space, equal neighbours as one; a further row for what acts once gains are folded."""
    after = {} if blueprint.after_folding is None else blueprint.after_folding.spaces
    by_row: dict[str, list[Space]] = {}
    for space in blueprint.spaces.values():
        row = name_of_kind(space.name)
        by_row.setdefault(row, []).append(space)
        if space.name in after and after[space.name].group != space.group:
            by_row.setdefault(f"{row}{FOLDED}", []).append(after[space.name])
    return {row: list(_cells(spaces, columns)) for row, spaces in by_row.items()}


def _cells(spaces: Sequence[Space], columns: int) -> Iterator[Cell]:
    by_place: dict[tuple[int, int], list[Space]] = {}
    for space in spaces:
        place = (0, columns) if space.layer is None else (space.layer, space.layer + 1)
        by_place.setdefault(place, []).append(space)
    last: Cell | None = None
    for (start, end), here in sorted(by_place.items()):
        counted = Counter(map(_text, here))
        text = ", ".join(f"{count} x {one}" if count > 1 else one for one, count in counted.items())
        if here[0].layer is None and columns > 1:
            text += ": one space, of no one layer" if len(here) == 1 else ": spaces of no one layer"
        cell = Cell(start, end, here[0].group.label, text)
        if last is not None and last.end == start and (last.label, last.text) == (cell.label, text):
            last = replace(last, end=end)
            continue
        if last is not None:
            yield last
        last = cell
    if last is not None:
        yield last


def _text(space: Space) -> str:
    """A space's group, and what its copies are of."""
    if not space.index:
        return str(space.group)
    of = (name_of_kind(name).rsplit(".", 1)[-1] for name in space.index)
    counts = " x ".join(f"{count:,} {what}" for count, what in zip(space.copies, of, strict=True))
    return f"{space.group} for each of {counts}"


def _fitted(cells: Sequence[Cell], columns: int) -> list[Cell]:
    """The cells with their text in lines that fit; with none where it would take too many, or break a word."""
    fitted = []
    for cell in cells:
        letters = int((cell.end - cell.start) / columns * BESIDE / LETTER) - 1
        words = cell.text.split()
        fits = max(map(len, words)) <= letters
        lines = tuple(textwrap.wrap(cell.text, letters)) if fits else ()
        fitted.append(replace(cell, lines=lines if len(lines) <= MOST_LINES else ()))
    return fitted


def _name_lines(row: str, cells: Sequence[Cell]) -> list[str]:
    """A row's name, broken at its dots, and under it what does not fit into its cells."""
    lines = [""]
    for part in row.strip().split("."):
        piece = part if lines == [""] else f".{part}"
        if lines[-1] and len(lines[-1]) + len(piece) > NAME:
            lines.append("  ")
        lines[-1] += piece
    hidden = ", ".join(dict.fromkeys(cell.text for cell in cells if not cell.lines))
    return [*lines, *textwrap.wrap(hidden, NAME, max_lines=MOST_LINES, placeholder=" …")]


def _colours(blueprint: Blueprint) -> Mapping[str, str]:
    """A colour for each name of a group, the same for all models that have the usual ones."""
    usual = ("S", "GL", "R*", "C*", "O", "R+", "O1")
    labels = [*usual, *(label for label in legend_of(blueprint) if label not in usual)]
    return {label: COLOURS[index % len(COLOURS)] for index, label in enumerate(labels)}


def _pale(colour: str) -> tuple[float, float, float]:
    red, green, blue = (WHITE + (1 - WHITE) * part for part in to_rgb(colour))
    return red, green, blue


def _draw(panel: Axes, cell: Cell, top: float, height: float, colour: str) -> None:
    """A cell and what is written in it."""
    box = Rectangle(
        (cell.start, top + 0.05), cell.end - cell.start, height - 0.1,
        facecolor=_pale(colour), edgecolor="white", linewidth=1.5,
    )  # fmt: skip
    panel.add_patch(box)
    middle = (cell.start + cell.end) / 2, top + height / 2
    panel.text(*middle, plain("\n".join(cell.lines)), ha="center", va="center", fontsize=SIZE, color=INK)


def _draw_columns(panel: Axes, layers: int) -> None:
    """Numbers of layers above the columns, and lines between these."""
    panel.set_xlim(0, max(1, layers))
    panel.xaxis.tick_top()
    panel.xaxis.set_label_position("top")
    step = max(1, -(-layers // 24))
    panel.set_xticks([layer + 0.5 for layer in range(0, layers, step)], [str(n) for n in range(0, layers, step)])
    panel.set_xlabel("layer" if layers else "no layers", fontsize=9.5, color=MUTED)
    panel.tick_params(length=0, labelsize=SIZE, labelcolor=INK)
    panel.tick_params(axis="x", labelcolor=MUTED)
    for spine in panel.spines.values():
        spine.set_visible(False)
