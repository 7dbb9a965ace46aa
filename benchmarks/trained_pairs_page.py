"""The page about pairs of a kind, written from what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from textwrap import fill

from intervals import nats, reached, seeds_of
from pair_page import at_equal_time, choices, missing, of_pairs, seconds
from pair_plan import Cell, Seeds, cell_name
from trained_pairs_kinds import KINDS, POINTS, Kind

WIDTH = 120


def page(name: str, found: Cell) -> str:
    """The whole page.

    Args:
        name: of the kind.
        found: all cells.
    """
    kind, parts = KINDS[name], [_introduction(name)]
    if kind.plan.missing(found) is not None and _ends(kind, found):
        parts += [_table(kind, found), _pairs(kind, found), _equal_time(kind, found)]
    return "\n".join(filter(None, [*parts, _choices(kind, found), missing(kind.plan, found)]))


def _introduction(name: str) -> str:
    kind = KINDS[name]
    tuning, test = (
        ", ".join(f"({one}, {other})" for one, other in pairs) for pairs in (kind.plan.tuning, kind.plan.test)
    )
    first = f"""That command writes this page from [`{name}.json`]({name}.json); no number of it is typed by hand.
{kind.about}"""
    if kind.metric == "accuracy":
        shown = "What stands in the tables is accuracy."
    else:
        shown = """What stands in the tables is the loss in nats above the mean of the pair's end models, and below it
where negative."""
    then = f"""Settings were chosen on the pair of seeds {tuning}; the tables are of the pairs {test}. {shown} A pair's
value is the mean over its seeds of learning; behind ± is half the width of a 95 % interval over pairs (Student's t);
the worst is that of one pair and one seed. Whatever learns takes {kind.plan.steps} steps of {kind.batch_size}. The
barrier is how far the loss on the line between the twins ({POINTS} points) rises above the straight line between their
losses, mean (highest), in nats. Seconds are of one processor, on machines that other programs used."""
    paragraphs = "\n\n".join(
        fill(text, WIDTH, break_long_words=False, break_on_hyphens=False) for text in (first, then)
    )
    return f"""# {kind.title}

    python benchmarks/trained_pairs.py {name}

{paragraphs}
"""


def _ends(kind: Kind, found: Cell) -> dict[Seeds, Cell]:
    names = {pair: cell_name("test", pair, "ends") for pair in kind.plan.test}
    return {pair: found[name] for pair, name in names.items() if name in found}


def _value(kind: Kind, cell: Cell, ends: Cell) -> float:
    """What stands in the tables for a cell: its accuracy, or its loss above the end models."""
    return float(cell["accuracy"] if kind.metric == "accuracy" else cell["loss"] - fmean(ends["ends"]))


def _values(kind: Kind, found: Cell, cells: dict[Seeds, list[Cell]]) -> dict[Seeds, list[float]]:
    """By pair and seed of learning what stands in the tables."""
    ends = _ends(kind, found)
    return {pair: [_value(kind, cell, ends[pair]) for cell in several] for pair, several in cells.items()}


def _told(kind: Kind, values: dict[Seeds, list[float]]) -> str:
    """The mean over pairs, and the worst of all."""
    means, every = [fmean(several) for several in values.values()], [x for several in values.values() for x in several]
    if kind.metric == "accuracy":
        return f"{reached(means)} | {100 * min(every):.1f}"
    return f"{nats(means)} | {max(every):.3f}"


def _one(kind: Kind, value: float) -> str:
    return f"{100 * value:.1f}" if kind.metric == "accuracy" else f"{value:.3f}"


def _references(kind: Kind, found: Cell) -> dict[str, dict[Seeds, list[float]]]:
    """What the end models and their ensemble reach, as it stands in the tables."""
    ends = _ends(kind, found)
    rows = {"end models": "ends", "ensemble of both": "ensemble"}
    return {
        words: {
            pair: [_value(kind, {kind.metric: fmean(cell[name])}, cell)] for pair, cell in ends.items()
        }
        for words, name in rows.items()
    }  # fmt: skip


def _table(kind: Kind, found: Cell) -> str:
    lines = [f"| | {words} | | {_told(kind, rows)} | | |" for words, rows in _references(kind, found).items() if rows]
    for way in kind.plan.ways:
        cells = of_pairs(kind.plan, found, way)
        if cells:
            values = _values(kind, found, cells)
            barriers = [cell["barrier"] for several in cells.values() for cell in several if "barrier" in cell]
            barrier = f"{fmean(barriers):.3f} ({max(barriers):.3f})" if barriers else ""
            seeds = seeds_of(cells.values()) if way.learns else ""
            told = f"{_told(kind, values)} | {barrier} | {seconds(cells):.0f}"
            part = "" if len(cells) == len(kind.plan.test) else f" ({len(cells)} of {len(kind.plan.test)} pairs)"
            lines.append(f"| {way.seen} | {way.name}{part} | {seeds} | {told} |")
    return f"""## {len(kind.plan.test)} pairs

| sees | way | seeds | {_heading(kind)} | worst | barrier | seconds |
|---|---|---:|---:|---:|---:|---:|
{chr(10).join(lines)}
"""


def _heading(kind: Kind) -> str:
    return "accuracy (%)" if kind.metric == "accuracy" else "lost"


def _pairs(kind: Kind, found: Cell) -> str:
    rows = dict(_references(kind, found))
    if kind.metric == "loss":
        rows = {"end models, their losses": {p: list(cell["ends"]) for p, cell in _ends(kind, found).items()}, **rows}
        del rows["end models"]
    for way in kind.plan.ways:
        rows[f"{way.name}, sees {way.seen}"] = _values(kind, found, of_pairs(kind.plan, found, way))
    lines = [
        f"| {words} | {' | '.join(_listed(kind, values.get(pair, ())) for pair in kind.plan.test)} |"
        for words, values in rows.items()
        if values
    ]
    return f"""## Pair by pair

Each seed of learning.

| | {" | ".join(f"{one}, {other}" for one, other in kind.plan.test)} |
|---|{"---:|" * len(kind.plan.test)}
{chr(10).join(lines)}
"""


def _listed(kind: Kind, values: Sequence[float]) -> str:
    return ", ".join(_one(kind, value) for value in values)


def _equal_time(kind: Kind, found: Cell) -> str:
    lines = [
        f"| {way.name} | {steps} | {seeds_of(cells.values())} | {_told(kind, _values(kind, found, cells))} "
        f"| {seconds(cells):.0f} |"
        for way, steps, cells in at_equal_time(kind.plan, found)
    ]
    if not lines:
        return ""
    return f"""## At equal time

Distillations of as many steps as take a processor as long as `learned` does, on the tuning pair.

| way | steps | seeds | {_heading(kind)} | worst | seconds |
|---|---:|---:|---:|---:|---:|
{chr(10).join(lines)}
"""


def _choices(kind: Kind, found: Cell) -> str:
    table = choices(kind.plan, found, lambda cells: _one(kind, fmean(cell[kind.metric] for cell in cells)))
    if not table:
        return ""
    what = "Accuracy" if kind.metric == "accuracy" else "The loss"
    return f"""## What was chosen

{what} on the tuning pair's validation data; the chosen setting, in bold, is the best of them. One seed of learning.
Where it is the smallest or the largest that was tried, one beyond it might be better still.

{table}
"""
