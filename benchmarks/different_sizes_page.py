"""The page about models of different sizes, written from what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from intervals import half_width
from sizes_freedom import freedom_text
from sizes_measures import POINTS, SMALL, STEPS, Size, cell_name
from sizes_missing import equal_time, missing
from sizes_tasks import tasks_text
from sizes_trained_page import trained_text

# Of the points on a line, those in the table.
PLACES = (0, 5, 10, 15, 20)
# In points from the mean of the ends, and in percent.
LEAST_LEARNED, AIM_OF_WEIGHTS = -1.0, 80
ENDS, MEAN, WEIGHTS, LEARNED = "ends", "mean of the ends", "`weights`", f"**`learned`, {STEPS} steps**"


@dataclass(frozen=True)
class Shown:
    """What was to be measured; a page shows what is there.

    Attributes:
        tuning: seeds of the small models of the tuning pairs.
        test: of the test pairs.
        seeds: of learning and distillation.
        sizes: of the large models.
        deep: the size of the tuning pairs' large model.
        chosen: the places of layers that were chosen on the tuning pairs.
        alike: by tuning pair, where activations are most alike.
        others: further places that were tried.
    """

    tuning: tuple[int, ...]
    test: tuple[int, ...]
    seeds: tuple[int, ...]
    sizes: tuple[Size, ...]
    deep: Size
    chosen: tuple[int, ...]
    alike: dict[int, tuple[int, ...]]
    others: tuple[tuple[int, ...], ...]


def page(found: dict[str, Any], trained: dict[str, Any], shown: Shown) -> str:
    """The whole page.

    Args:
        found: all cells of digits.
        trained: all cells of CIFAR-10 and of text.
        shown: which of those of digits.
    """
    tables = [Table(found, size, shown) for size in shown.sizes]
    tables = [table for table in tables if table.pairs]
    parts = [_introduction(found, shown), *(table.text() for table in tables)]
    tasks, freedom = tasks_text(found, shown.sizes, shown.test), freedom_text(found, shown.sizes, shown.tuning)
    parts += filter(None, [tasks, trained_text(trained), _places(found, shown), freedom])
    return "\n".join([*parts, _summary(tables, shown), *missing(found, trained, shown)])


class Table:
    """The rows of one size of the large model.

    Args:
        found: all cells.
        size: of the large model.
        shown: which of them.
    """

    def __init__(self, found: dict[str, Any], size: Size, shown: Shown) -> None:
        self.found, self.size, self.seeds = found, size, shown.seeds
        self.pairs = [pair for pair in shown.test if self.cell(pair, ENDS)]
        self.equal_time = equal_time(found)

    def cell(self, pair: int, what: str) -> Any:
        """A cell, or nothing."""
        return self.found.get(cell_name("test", pair, self.size, what))

    def cells(self, pair: int, what: str) -> list[Any]:
        """The cells of one pair, one for each seed where there are several."""
        several = [self.cell(pair, what), *(self.cell(pair, f"{what} {seed}") for seed in self.seeds)]
        return [cell for cell in several if cell]

    def values(self, what: str, key: str) -> dict[int, list[float]]:
        """By pair the values of one key, one for each seed; pairs without any are left out."""
        found = {pair: [cell[key] for cell in self.cells(pair, what)] for pair in self.pairs}
        return {pair: values for pair, values in found.items() if values}

    def rows(self) -> dict[str, dict[int, list[float]]]:
        """Accuracies by row, pair and seed."""
        small, large = self.values(ENDS, "small"), self.values(ENDS, "large")
        rows = {
            "small end model": small,
            "small end model, grown": self.values(ENDS, "grown"),
            "large end model": large,
            MEAN: {pair: [(small[pair][0] + large[pair][0]) / 2] for pair in self.pairs},
            "ensemble of both": self.values(ENDS, "ensemble"),
            "plain mean after growth": self.values("none", "accuracy"),
            WEIGHTS: self.values("weights", "accuracy"),
            LEARNED: self.values("learned", "accuracy"),
        }
        for end in ("large", "small"):
            name = f"both distilled into the {end} one, {self.equal_time} steps (equal time)"
            rows[name] = self.values(f"{end} {self.equal_time}", "accuracy")
        rows |= {
            "`learned`, shrunk to the small size": self.values("learned", "shrunk"),
            f"the same, polished {STEPS} steps": self.values("learned", "polished"),
        }
        return {name: values for name, values in rows.items() if values}

    def gaps(self) -> list[list[float]]:
        """How far `learned` is from the mean of the ends, in points: for each pair a list of its seeds."""
        rows = self.rows()
        return [[100 * (v - rows[MEAN][pair][0]) for v in values] for pair, values in rows.get(LEARNED, {}).items()]

    def text(self) -> str:
        """The tables of this size."""
        points = " | ".join(f"{place / (POINTS - 1):g}" for place in PLACES)
        cells = [self.cell(pair, ENDS) for pair in self.pairs]
        few, many = cells[0]["parameters"]
        learned = f"`learned`, {STEPS} steps"
        lines = {"plain, after growth": "none", WEIGHTS: "weights", learned: "learned"}
        compared = {
            **lines,
            f"both distilled into the large one, {self.equal_time} steps": f"large {self.equal_time}",
            f"both distilled into the small one, {self.equal_time} steps": f"small {self.equal_time}",
        }
        return f"""## {SMALL[1]} layers, {SMALL[0]} wide, with {self.size[1]} layers, {self.size[0]} wide

{few:,} parameters become {many:,}. Logits of the small model and of the grown one differ by at most
{max(cell["exact"] for cell in cells):.0e} of the largest in float64.

| accuracy in % | seeds | mean | worst | {" | ".join(f"pair {pair}" for pair in self.pairs)} |
|---|---:|---:|---:|{"---:|" * len(self.pairs)}
{_joined(self._row(name, values) for name, values in self.rows().items())}

The line from the small model's twin (0) to the large one's (1), all pairs and seeds:

| accuracy in %, mean (worst) | {points} | barrier of the loss, mean (highest) |
|---|{"---:|" * (len(PLACES) + 1)}
{_joined(self._line(name, what) for name, what in lines.items() if self.values(what, "line"))}

The test images on which the ends differ, all pairs and seeds, are taken as

| | images | the small one | the large one | neither |
|---|---:|---:|---:|---:|
{_joined(self._agreement(name, what) for name, what in compared.items() if self.values(what, "agrees"))}
"""

    def _row(self, name: str, values: dict[int, list[float]]) -> str:
        means = {pair: 100 * fmean(row) for pair, row in values.items()}
        half = f" ± {half_width(list(means.values())):.1f}" if len(means) > 2 else ""
        counts = sorted({len(row) for row in values.values()}) if "steps" in name or "shrunk" in name else []
        cells = [f"{means[pair]:.1f}" if pair in means else "" for pair in self.pairs]
        worst = 100 * min(map(min, values.values()))
        learned, mean = " to ".join(map(str, counts)), f"{fmean(means.values()):.1f}{half}"
        return f"| {name} | {learned} | {mean} | {worst:.1f} | {' | '.join(cells)} |"

    def _line(self, name: str, what: str) -> str:
        lines = [cell for pair in self.pairs for cell in self.cells(pair, what)]
        places = [[100 * line["line"][place] for line in lines] for place in PLACES]
        barriers = [line["barrier"] for line in lines]
        cells = " | ".join(f"{fmean(values):.1f} ({min(values):.1f})" for values in places)
        return f"| {name} | {cells} | {fmean(barriers):.3f} ({max(barriers):.3f}) |"

    def _agreement(self, name: str, what: str) -> str:
        pairs = [(self.cell(pair, ENDS)["differ"], cell) for pair in self.pairs for cell in self.cells(pair, what)]
        small, large = (sum(cell["agrees"][end] for _, cell in pairs) for end in (0, 1))
        differ = sum(count for count, _ in pairs)
        return f"| {name} | {differ} | {small} | {large} | {differ - small - large} |"


def _introduction(found: dict[str, Any], shown: Shown) -> str:
    sizes = " and ".join(f"{layers} layers, {width} wide" for width, layers in shown.sizes)
    return f"""# Models of different sizes

    python benchmarks/different_sizes.py

That command writes this page from [`different_sizes.json`](different_sizes.json); no number of it is typed by hand. A
small vision transformer of {SMALL[1]} layers, {SMALL[0]} wide, and a large one of another seed ({sizes})
learn scikit-learn's digits. The small one is grown into the large one's architecture ([how](../sizes.md)), both are
matched, and their weights are averaged. Larger models, of CIFAR-10 and of text, come after.

End models are trained on 1,300 images for 30 epochs by `vit_digits.yaml`; 1,400 images without labels are there to
match and to distil with, 397 to test on (one image is 0.25 points). A pair's number is the seed of the small model; the
large one's is that and 100. A pair's value is its mean over *seeds* of learning or distillation, whose number for
each pair is given; behind ± is half the width of a 95 % interval over pairs (Student's t); the worst is that of all
pairs and seeds.

Every option of matching, learning, distillation and polish has its default. Chosen were the places of layers
([below](#where-layers-go)) and that what is new is learned too ([below](#what-is-new-learned-too)), on other pairs,
whose small models have seeds {_listed(shown.tuning)}. Test tables of pairs 1 to 4 had been seen before
([four pairs of each kind](different_sizes_before.md)), and such tables of all five without what is new learned.
Distillation starts at an end model and teaches the mean output of both, in the {equal_time(found)} steps that take a
processor as long as learning took on the tuning pairs, without what is new.
"""


def _places(found: dict[str, Any], shown: Shown) -> str:
    everywhere = {places: dict.fromkeys(shown.tuning, places) for places in (shown.chosen, *shown.others)}
    end, alike = "each at the end of its share", "where activations are most alike"

    def row(name: str, preset: str, places: dict[int, tuple[int, ...]]) -> Iterator[str]:
        named = {pair: cell_name("tuning", pair, shown.deep, f"{preset} {there}") for pair, there in places.items()}
        cells = {pair: found[name] for pair, name in named.items() if name in found}
        if not cells:
            return
        reached = {pair: 100 * cell["accuracy"] for pair, cell in cells.items()}
        each = " | ".join(f"{reached[pair]:.1f}" if pair in reached else "" for pair in shown.tuning)
        lowest = fmean(100 * min(cell["line"]) for cell in cells.values())
        barrier = fmean(cell["barrier"] for cell in cells.values())
        yield f"| {name} | {fmean(reached.values()):.1f} | {lowest:.1f} | {barrier:.3f} | {each} |"

    rows = [
        *row(f"**`learned`, `unseen` false, {alike}**", "learned", shown.alike),
        *row(f"`learned`, `unseen` false, {_listed(shown.chosen)}: {end}", "learned", everywhere[shown.chosen]),
        *row("the same, `concentration` 3", "nearer", everywhere[shown.chosen]),
        *row(f"**`weights`, {_listed(shown.chosen)}: {end}**", "weights", everywhere[shown.chosen]),
        *row("the same, what is new zero and not filled", "zeros", everywhere[shown.chosen]),
        *row(f"`weights`, {alike}", "weights", shown.alike),
        *(
            line
            for places in shown.others
            for line in row(f"`weights`, {_listed(places)}", "weights", everywhere[places])
        ),
    ]
    return f"""## Where layers go

The {SMALL[1]} layers of the small model among {shown.deep[1]} places, counted from 0, on the tuning pairs: accuracy in
% half way, the lowest on the line between the twins, and the barrier of the loss; a mean is over the pairs that are
there. Activations are most alike (linear CKA on the training images) at
{"; ".join(dict.fromkeys(_listed(places) for places in shown.alike.values()))}.

| | half way | lowest | barrier | {" | ".join(f"seeds {pair}, {pair + 1}" for pair in shown.tuning)} |
|---|---:|---:|---:|{"---:|" * len(shown.tuning)}
{_joined(rows)}

`learned` has data and places layers where activations are most alike, for the line between the twins; `weights` has
none and places them at the end of their share, for the accuracy half way.
"""


def _summary(tables: Sequence[Table], shown: Shown) -> str:
    rows = [table.rows().get(WEIGHTS, {}) for table in tables]
    weights = [100 * value for row in rows for values in row.values() for value in values]
    lines = []
    if weights:
        is_whole = len(weights) == len(shown.test) * len(shown.sizes)
        is_reached = _reached(fmean(weights) >= AIM_OF_WEIGHTS, is_whole)
        lines.append(
            f"- `weights` is at {fmean(weights):.1f} on average of {len(weights)} pairs, the worst at "
            f"{min(weights):.1f}: the aim of {AIM_OF_WEIGHTS} on average is {is_reached}."
        )
    for table in [table for table in tables if table.gaps()]:
        runs = [gap for gaps in table.gaps() for gap in gaps]
        pairs = [fmean(gaps) for gaps in table.gaps()]
        lines += [
            f"- `learned` with {table.size[1]} layers is {fmean(pairs):+.2f} points from the mean of the ends on "
            f"average, {min(pairs):+.1f} in the worst pair ({min(runs):+.1f} in the worst run of all): that no "
            f"pair is more than a point below is "
            f"{_reached(min(pairs) >= LEAST_LEARNED, len(runs) == len(shown.test) * len(shown.seeds))}."
        ]
    return "## The aims\n\n" + _joined(lines) + "\n"


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def _reached(is_reached: bool, is_whole: bool) -> str:
    if not is_whole:
        return "not decided, since cells are missing"
    return "**reached**" if is_reached else "**missed**"


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))
