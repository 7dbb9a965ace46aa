"""Every merge method that needs no base model, on digit models of other seeds, unmatched and by three ways to match.

    python benchmarks/merge_methods.py
    python benchmarks/merge_methods.py --page

The first command trains what is missing in `checkpoints/digits_pairs`, measures what is missing in
`docs/results/merging.json`, and goes on where it was stopped. Then, as the second does alone, it writes
`docs/results/merging.md` from that file. Pairs, images and settings of matching are those of `digits_pairs.py`;
hyperparameters of every method are chosen after every matching by itself, on the tuning pairs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

from cells import Cells
from digits_pairs import TEST, TUNING, WIDTH
from digits_pairs_cells import STEPS, Pair, Split
from digits_ways import WAYS
from merge_methods_figure import figure
from merge_methods_page import MATCHINGS, METHODS, cell_name, page
from settings import quiet
from torch import nn
from ways import MEAN, Given, best_of

import fusionlab
from fusionlab.atomic import atomic_file
from fusionlab.matching.recipe import recipe

ROOT = Path(__file__).parents[1]
# Of the tables: the tuning pairs' own, and twice as wide.
WIDTHS = (WIDTH, 2 * WIDTH)
SEED = 0


class Merges:
    """The merges of one pair by every method.

    Args:
        pair: of end models.
        settings: of each matching.
        cells: where what is measured is kept.
    """

    def __init__(self, pair: Pair, settings: dict[str, Given], cells: Cells) -> None:
        self.pair, self.settings, self.cells = pair, settings, cells

    @cache  # noqa: B019 (a pair is kept as long as the command runs)
    def twins(self, matching: str) -> Sequence[nn.Module]:
        """Both models, matched to the second."""
        options = dict(self.settings[matching])
        if recipe(matching).needs_inputs:
            options |= {"data": self.pair.images(), "seed": SEED, "steps": STEPS}
        return fusionlab.align(self.pair.ends, anchor=1, preset=matching, **options)

    def measure(self, matching: str, method: str, given: Given) -> None:
        """Measure a cell that is missing."""
        name = cell_name(self.pair.split.name, self.pair.seeds[0], self.pair.width, matching, method, given)
        if name in self.cells.found:
            return
        twins, start = self.twins(matching), time.process_time()
        merge = fusionlab.merge(twins, method, data=self.pair.images(), **given)
        seconds = time.process_time() - start
        self.cells.keep(name, self.pair.scores(merge) | {"seconds": seconds})
        print(name, f"{self.cells.found[name]['accuracy']:.3f}", file=sys.stderr, flush=True)


def chosen(found: dict[str, Any], matching: str, method: str) -> Given:
    """The hyperparameters of a method after a matching that are best over the tuning pairs."""
    return best_of(
        METHODS[method],
        lambda given: [found[cell_name("tuning", pair, WIDTH, matching, method, given)] for pair in TUNING],
    )


def settings_of(digits: dict[str, Any]) -> dict[str, Given]:
    """The settings of each matching that were chosen for its plain mean, with all that it may look at.

    Args:
        digits: the cells of `digits_pairs.py`.
    """
    of_mean = {
        way.preset: digits["chosen"][way.key]
        for way in WAYS
        if way.then == MEAN and not way.variant and way.seen in ("none", "images")
    }
    return {matching: of_mean[matching] for matching in MATCHINGS}


def jobs() -> Iterator[tuple[int, int, str, str]]:
    """Pair, width, matching and method of all cells of the test pairs."""
    for width in WIDTHS:
        for pair in TEST:
            yield from ((pair, width, matching, method) for matching in MATCHINGS for method in METHODS)


def measure(cells: Cells, digits: Cells, folder: Path) -> None:
    """Measure what is missing.

    Args:
        cells: where it is kept.
        digits: those of `digits_pairs.py`, for the settings of each matching.
        folder: of the end models.
    """
    settings = settings_of(digits.found)
    cells.keep("matchings", settings)
    split = Split.tuning()
    for seed in TUNING:
        merges = Merges(Pair(split, (seed, seed + 1), WIDTH, cells, folder), settings, cells)
        for matching in MATCHINGS:
            for method, grid in METHODS.items():
                for given in grid:
                    merges.measure(matching, method, given)
    best = {matching: {method: chosen(cells.found, matching, method) for method in METHODS} for matching in MATCHINGS}
    cells.keep("chosen", best)
    split, pairs = Split.test(), dict[tuple[int, int], Merges]()
    for seed, width, matching, method in jobs():
        if (seed, width) not in pairs:
            pair = Pair(split, (seed, seed + 1), width, cells, folder)
            pair.end_models()
            pairs[seed, width] = Merges(pair, settings, cells)
        pairs[seed, width].measure(matching, method, best[matching][method])


def missing(found: dict[str, Any]) -> int:
    """How many cells of the test pairs are not measured yet."""
    names = (
        cell_name("test", pair, width, matching, method, found["chosen"][matching][method])
        for pair, width, matching, method in jobs()
    )
    return sum(name not in found for name in names)


def write(cells: Cells, results: Path) -> None:
    """Write the page and its picture."""
    left = missing(cells.found)
    with atomic_file(results / "merging.md", overwrite=True) as temporary:
        temporary.write_text(page(cells.found, TUNING, TEST, WIDTHS, left), encoding="utf-8")
    if not left:
        with atomic_file(results / "merging.png", overwrite=True) as temporary:
            temporary.write_bytes(figure(cells.found, TEST, WIDTHS))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "results", help="folder of cells and page")
    parser.add_argument("--models", type=Path, default=ROOT / "checkpoints" / "digits_pairs")
    parser.add_argument("--page", action="store_true", help="write the page from the cells, and measure nothing")
    args = parser.parse_args()
    quiet(1)
    cells = Cells(args.results / "merging.json")
    if not args.page:
        measure(cells, Cells(args.results / "digits.json"), args.models)
    write(cells, args.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
