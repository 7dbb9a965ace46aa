"""The picture of two models from other seeds made one: what every way closes of the gap, by kind of models.

    python benchmarks/pairs_figure.py

writes `docs/results/pairs.png` from the cells of the pages about pairs, which are beside it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from cells import Cells
from digits_pairs import SHOWN
from digits_pairs_page import Rows
from digits_ways import WAYS
from encoders_ways import PLAN as ENCODERS
from intervals import half_width
from matplotlib.lines import Line2D
from pair_page import of_pairs
from pair_plan import Cell, PairPlan, Seeds, cell_name
from trained_pairs_kinds import KINDS
from ways import Way

from fusionlab.atomic import atomic_file
from fusionlab.evaluation.drawing import COLOURS, INK, MARKERS, MUTED, legend, panels, png, title

FOLDER = Path(__file__).parents[1] / "docs" / "results"
# In percent of the gap; what lies further out is drawn at the edge.
LEAST, MOST = -55.0, 145.0
# Ways that all kinds have, of which those with inputs see real ones.
SHOWN_WAYS = tuple(way for way in KINDS["gpt2_untied"].plan.ways if way.name != "plain mean")


@dataclass(frozen=True)
class Reached:
    """What was reached on pairs of one kind, the more the better.

    Attributes:
        title: of the kind.
        ends: by pair, of the end models.
        plain: by pair, of their plain mean.
        of_way: gives the same of a way; empty where it is not measured.
    """

    title: str
    ends: Mapping[object, float]
    plain: Mapping[object, float]
    of_way: Callable[[Way], Mapping[object, float]]

    def closed(self, way: Way) -> list[float]:
        """By pair how much of the gap from the plain mean to the end models a way closes, in percent."""
        return [
            100 * (value - self.plain[pair]) / (self.ends[pair] - self.plain[pair])
            for pair, value in self.of_way(way).items()
        ]


def reached(folder: Path) -> Iterator[Reached]:
    """What is measured of each kind.

    Args:
        folder: of the cells.
    """
    yield _digits(Cells(folder / "digits.json").found)
    for name, words in (
        ("cifar10", "ViTs on CIFAR-10"), ("gpt2_untied", "GPT-2s, untied"), ("gpt2_tied", "GPT-2s, tied"),
        ("experts", "Mixtrals"),
    ):  # fmt: skip
        yield _of_kind(name, words, folder)
    yield _planned(
        "BERTs", ENCODERS, Cells(folder / "encoders.json").found,
        lambda cell: fmean(cell["scores"]), lambda cell: max(map(fmean, cell["ends"])),
    )  # fmt: skip


def _of_kind(name: str, words: str, folder: Path) -> Reached:
    kind = KINDS[name]
    sign = 1 if kind.metric == "accuracy" else -1

    def score(cell: Cell) -> float:
        return sign * float(cell[kind.metric])

    def ends(cell: Cell) -> float:
        return sign * fmean(cell["ends"])

    return _planned(words, kind.plan, Cells(folder / f"{name}.json").found, score, ends)


def _digits(found: Cell) -> Reached:
    rows = Rows(dict(found), SHOWN, SHOWN.width)
    _, ends = next(rows.ends(SHOWN.test))
    same = {(way.preset, way.then, way.variant): way for way in WAYS if way.seen != "synthetic"}

    def of_way(way: Way) -> dict[object, float]:
        other = same.get((way.preset, way.then, way.variant))
        cells = rows.cells(other, SHOWN.test) if other is not None else {}
        return {pair: fmean(cell["accuracy"] for cell in several) for pair, several in cells.items()}

    plain = of_way(KINDS["gpt2_untied"].plan.ways[0])
    return Reached("ViTs on digits", dict(zip(SHOWN.test, ends, strict=True)), plain, of_way)


def _planned(
    title: str, plan: PairPlan, found: Cell, score: Callable[[Cell], float], ends: Callable[[Cell], float]
) -> Reached:
    def of_way(way: Way) -> dict[object, float]:
        other = next(one for one in plan.ways if one.name == way.name)
        return {pair: fmean(map(score, cells)) for pair, cells in of_pairs(plan, found, other).items()}

    def of_ends(pair: Seeds) -> float:
        return ends(found[cell_name("test", pair, "ends")])

    return Reached(title, {pair: of_ends(pair) for pair in plan.test}, of_way(plan.ways[0]), of_way)


def figure(kinds: Sequence[Reached]) -> bytes:
    """The picture, as the bytes of a PNG file.

    Args:
        kinds: what was reached on each.
    """
    drawn, (panel,) = panels(1, 1, 0.55 * len(SHOWN_WAYS) + 0.9, stacked=False)
    for place, kind in enumerate(kinds):
        shift = 0.13 * (place - (len(kinds) - 1) / 2)
        for row, way in enumerate(SHOWN_WAYS):
            closed = kind.closed(way)
            if closed:
                panel.errorbar(
                    [min(max(fmean(closed), LEAST), MOST)], [len(SHOWN_WAYS) - 1 - row - shift],
                    xerr=[half_width(closed) if len(closed) > 2 else 0.0], fmt=MARKERS[place], color=COLOURS[place],
                    ecolor=COLOURS[place], elinewidth=1, capsize=0, markersize=5,
                )  # fmt: skip
    for position in (0.0, 100.0):
        panel.axvline(position, color=MUTED, linestyle=(0, (4, 3)), linewidth=1)
    names = [way.name.replace("*", "").replace("`", "") for way in SHOWN_WAYS]
    panel.set_yticks(range(len(names)), [*reversed(names)])
    panel.tick_params(axis="y", labelcolor=INK)
    panel.set_ylim(-0.6, len(names) - 0.4)
    panel.set_xlim(LEAST, MOST)
    panel.set_xlabel(
        "from the plain mean (0) to the end models (100), in percent:\nmean over pairs, and its 95 % interval"
    )
    title(drawn, "Two models from other seeds made one: what every way closes")
    handles = [
        Line2D([], [], color=COLOURS[place], marker=MARKERS[place], linestyle="none", label=kind.title)
        for place, kind in enumerate(kinds)
    ]
    legend(drawn, handles, 3)
    return png(drawn)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=FOLDER, help="folder of cells and picture")
    args = parser.parse_args(argv)
    with atomic_file(args.results / "pairs.png", overwrite=True) as temporary:
        temporary.write_bytes(figure(list(reached(args.results))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
