"""The page about digit models of one size and other seeds, written from what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from digits_pairs_cells import HELD_OUT, POINTS, STEPS, SYNTHETIC
from digits_ways import ALONE, CLOSED, LEARNING, WAYS, cell_name
from intervals import reached, seeds_of
from ways import DISTILLED, Given, Way, what

SEEN = {"none": "nothing", "synthetic": "synthetic inputs", "images": "1,400 images"}
# Percent, on the mean and at least, without data and without a descent.
AIM, LEAST = 75, 60
ENDS = ("mean of the ends", "ensemble of both")


@dataclass(frozen=True)
class Shown:
    """What was to be measured; a page shows what is there.

    Attributes:
        tuning: first seeds of the tuning pairs.
        test: of the test pairs.
        further: of further ones, for what sees no data and does not learn.
        seeds: of learning.
        width: of the tuning pairs and of most test pairs.
        others: further widths.
        counts: of images.
    """

    tuning: tuple[int, ...]
    test: tuple[int, ...]
    further: tuple[int, ...]
    seeds: tuple[int, ...]
    width: int
    others: tuple[int, ...]
    counts: tuple[int, ...]


class Rows:
    """What is known of the test pairs of one width.

    Args:
        found: all cells.
        shown: which of them.
        width: of the models.
    """

    def __init__(self, found: dict[str, Any], shown: Shown, width: int) -> None:
        self.found, self.shown, self.width = found, shown, width

    def cells(self, way: Way, pairs: Sequence[int], more: Given | None = None, **how: Any) -> dict[int, list[Any]]:
        """By pair the cells of a way with the chosen settings, and more, one for each seed of learning."""
        given: Given = self.found["chosen"][way.key] | (more or {})
        seeds = self.shown.seeds if way.learns else (None,)
        names = {
            pair: [cell_name("test", pair, self.width, what(way, given, seed, **how)) for seed in seeds]
            for pair in pairs
        }
        rows = {pair: [self.found[name] for name in several if name in self.found] for pair, several in names.items()}
        return {pair: cells for pair, cells in rows.items() if cells}

    def ends(self, pairs: Sequence[int]) -> Iterator[tuple[str, list[float]]]:
        """The means of both end models and their ensembles, by pair."""
        names = [cell_name("test", pair, self.width, "ends") for pair in pairs]
        cells = [self.found[name] for name in names if name in self.found]
        for name, values in zip(
            ENDS, ([fmean(cell["ends"]) for cell in cells], [cell["ensemble"] for cell in cells]), strict=True
        ):
            if values:
                yield name, values


def page(found: dict[str, Any], shown: Shown, missing: Mapping[str, int]) -> str:
    """The whole page.

    Args:
        found: all cells.
        shown: which of them.
        missing: how many cells of each part are not measured yet.
    """
    rows = Rows(found, shown, shown.width)
    parts = [_introduction(shown), _table(rows), _alone(rows), _equal_time(rows), _few(rows)]
    parts += [_width(Rows(found, shown, width)) for width in shown.others]
    parts += [_choices(found, shown)]
    if missing:
        told = ", ".join(f"{count} of {part}" for part, count in missing.items())
        parts += [f"Not measured so far are {sum(missing.values())} cells: {told}.\n"]
    return "\n".join(filter(None, parts))


def _introduction(shown: Shown) -> str:
    return f"""# Digits: two models of one size from different seeds

    python benchmarks/digits_pairs.py

That command writes this page from [`digits.json`](digits.json); no number of it is typed by hand. Two vision
transformers of the demo's config (4 layers, {shown.width} wide where nothing else is said) learn scikit-learn's digits
from other seeds. What stands in the tables is the accuracy of one model that is made of both, on 397 test images that
nothing else sees (one image is 0.25 points).

Settings are chosen on {len(shown.tuning)} tuning pairs of models that are trained on 1,000 images, by {HELD_OUT}
others; the test pairs are of other seeds, trained on 1,300 images, and 1,400 without labels are there to match with.
Behind ± is half the width of a 95 % interval over pairs (Student's t); a pair's value is the mean over its seeds of
learning, and the worst value is that of one pair and one seed. How this follows the [protocol](protocol.md) is told
there. Seconds are of one processor, on a machine that other programs used.

Rows of `learned` were measured after all others, when its steps had become Muon's, on end models of the same seeds that
another and slower processor trained; seconds of theirs compare with each other alone. AdamW's, with one seed of
learning, stand beside them.
"""


def _line(rows: Rows, way: Way) -> str | None:
    cells = rows.cells(way, rows.shown.test)
    if not cells:
        return None
    means = [fmean(cell["accuracy"] for cell in several) for several in cells.values()]
    every = [cell for several in cells.values() for cell in several]
    barriers = [cell["barrier"] for cell in every if "barrier" in cell]
    told = f"{fmean(barriers):.3f} ({max(barriers):.3f})" if barriers else ""
    worst, seconds = 100 * min(cell["accuracy"] for cell in every), fmean(cell["seconds"] for cell in every)
    seeds = seeds_of(cells.values()) if way.learns else ""
    return f"| {SEEN[way.seen]} | {way.name} | {seeds} | {reached(means)} | {worst:.1f} | {told} | {seconds:.1f} |"


def _table(rows: Rows) -> str:
    lines = [
        f"| | {name} | | {reached(values)} | {100 * min(values):.1f} | | |"
        for name, values in rows.ends(rows.shown.test)
    ]
    lines += filter(None, (_line(rows, way) for way in WAYS))
    return f"""## {len(rows.shown.test)} pairs

`learned` and distillations take {STEPS} steps; synthetic inputs are {SYNTHETIC:,}. The barrier is how far the loss
on the line between the twins ({POINTS} points) rises above the straight line between their losses, mean (highest).

| sees | way | seeds | accuracy (%) | worst | barrier | seconds |
|---|---|---:|---:|---:|---:|---:|
{chr(10).join(lines)}
"""


def _alone(rows: Rows) -> str:
    pairs = (*rows.shown.test, *rows.shown.further)
    lines, verdicts = [], []
    for way in CLOSED:
        values = [cells[0]["accuracy"] for cells in rows.cells(way, pairs).values()]
        if len(values) < len(pairs):
            continue
        told = f"{reached(values)} | {100 * min(values):.1f} | {100 * max(values):.1f}"
        lines.append(f"| {SEEN[way.seen]} | {way.name} | {told} |")
        if way.preset == "weights":
            mean, least = (
                "reached" if value >= aim else "missed"
                for value, aim in ((100 * fmean(values), AIM), (100 * min(values), LEAST))
            )
            verdicts.append(f"For {way.name} it is {mean} on the mean and {least} in the worst pair.")
    if not verdicts:
        return ""
    return f"""## Without data and without a descent, {len(pairs)} pairs

| sees | way | accuracy (%) | worst | best |
|---|---|---:|---:|---:|
{chr(10).join(lines)}

The aim is {AIM} on the mean and none under {LEAST}. {" ".join(verdicts)}
"""


def _equal_time(rows: Rows) -> str:
    lines, whole = [], False
    for ways in LEARNING.values():
        for way in ways:
            steps = rows.found["equal time"].get(way.key)
            cells = rows.cells(way, rows.shown.test, steps=steps)
            if len(cells) == len(rows.shown.test):
                whole = whole or steps is not None
                means = [fmean(cell["accuracy"] for cell in several) for several in cells.values()]
                every = [cell for several in cells.values() for cell in several]
                worst, seconds = min(cell["accuracy"] for cell in every), fmean(cell["seconds"] for cell in every)
                seeds = seeds_of(cells.values())
                lines.append(
                    f"| {SEEN[way.seen]} | {way.name} | {steps or STEPS} | {seeds} | {reached(means)} "
                    f"| {100 * worst:.1f} | {seconds:.1f} |"
                )
    if not whole:
        return ""
    return f"""## At equal time

Distillations of as many steps as take a processor as long as `learned` does, on the tuning pairs.

| sees | way | steps | seeds | accuracy (%) | worst | seconds |
|---|---|---:|---:|---:|---:|---:|
{chr(10).join(lines)}
"""


def _few(rows: Rows) -> str:
    lines = []
    for way, more, words in _ways_of_few():
        values, measured = [], list[list[Any]]()
        for count in (*rows.shown.counts, None):
            cells = rows.cells(way, rows.shown.test, more if count else None, images=count)
            means = [fmean(cell["accuracy"] for cell in several) for several in cells.values()]
            values.append(reached(means) if len(means) == len(rows.shown.test) else "")
            measured += cells.values() if count else ()
        if any(values[:-1]):
            lines.append(f"| {way.name}{words} | {seeds_of(measured)} | {' | '.join(values)} |")
    if not lines:
        return ""
    return f"""## Few images

Of so many images without labels, with the settings that were chosen for all of them. Fewer than 5,000 are filled up
with random mixtures of two of them, and fewer than 1,000 are joined by synthetic inputs, up to 4,000 of them: the end
models answer for those as well. Synthetic inputs are new here, and the end models of this table were trained again, on
another processor.

| way | seeds | {" | ".join(map(str, rows.shown.counts))} | 1,400 |
|---|---:|{"---:|" * (len(rows.shown.counts) + 1)}
{chr(10).join(lines)}
"""


def _ways_of_few() -> Iterator[tuple[Way, Given, str]]:
    """The ways that learn from images, what is set beside what was chosen for them, and words for that."""
    for way in LEARNING["images"]:
        yield way, {}, ""
        if way.then != DISTILLED:
            yield way, ALONE, ", without synthetic inputs"


def _width(rows: Rows) -> str:
    lines = [
        f"| {name} | {reached(values)} | {100 * min(values):.1f} | | |" for name, values in rows.ends(rows.shown.test)
    ]
    for way in WAYS:
        line = _line(rows, way)
        if line is not None:
            _, _, name, _, accuracy, worst, barrier, seconds, _ = line.split("|")
            lines.append(f"|{name}|{accuracy}|{worst}|{barrier}|{seconds}|")
    if len(lines) <= len(ENDS):
        return ""
    return f"""## {rows.width} wide

Other models, with the settings that were chosen at {rows.shown.width}; `learned` sees 1,400 images, all others weights
alone.

| way | accuracy (%) | worst | barrier | seconds |
|---|---:|---:|---:|---:|
{chr(10).join(lines)}
"""


def _choices(found: dict[str, Any], shown: Shown) -> str:
    lines = []
    for way in WAYS:
        if len(way.grid) == 1:
            continue
        seed = shown.seeds[0] if way.learns else None
        tried = []
        for given in way.grid:
            cells = [found[cell_name("tuning", pair, shown.width, what(way, given, seed))] for pair in shown.tuning]
            words = ", ".join(f"`{name}` {value}" for name, value in given.items()) or "the defaults"
            mark = "**" if given == found["chosen"][way.key] else ""
            tried.append(f"{mark}{words}: {100 * fmean(cell['accuracy'] for cell in cells):.1f}{mark}")
        lines.append(f"| {SEEN[way.seen]} | {way.name} | {'; '.join(tried)} |")
    pairs = ", ".join(f"{pair} and {pair + 1}" for pair in shown.tuning)
    return f"""## What was chosen

Accuracies on the {HELD_OUT} images of the {len(shown.tuning)} tuning pairs (seeds {pairs}); the chosen setting, in
bold, is the best of them, the one of the lower loss among equals. One seed of learning.

| sees | way | tried |
|---|---|---|
{chr(10).join(lines)}
"""
