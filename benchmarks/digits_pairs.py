"""Two ViTs of other seeds on scikit-learn's digits: what every way to one model reaches, by the protocol.

    python benchmarks/digits_pairs.py
    python benchmarks/digits_pairs.py --page

The first command trains what is missing in `checkpoints/digits_pairs`, measures what is missing in
`docs/results/digits.json`, and goes on where it was stopped. Then, as the second does alone, it writes
`docs/results/digits.md` from that file. Settings are chosen on images that the tuning models were not trained on, and
the tables are of other models and of the test images.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

from cells import Cells
from digits_pairs_cells import STEPS, Pair, Split
from digits_pairs_page import Shown, page
from digits_ways import DISTILLED, LEARNING, WAYS, Given, Way, cell_name, what
from settings import quiet

from fusionlab.atomic import atomic_file

ROOT = Path(__file__).parents[1]
# Pairs by the first one's seed; the second's is one more. Ten of them are for what sees weights alone.
TUNING, TEST, FURTHER = (201, 203, 205), (301, 303, 305, 307, 309), (311, 313, 315, 317, 319)
WIDTH, OTHER_WIDTHS = 64, (32, 128)
SEEDS = (0, 1, 2)
COUNTS = (16, 32, 64, 128, 256)
SHOWN = Shown(TUNING, TEST, FURTHER, SEEDS, WIDTH, OTHER_WIDTHS, COUNTS)


def measure_tuning(pair: Pair) -> None:
    """The cells that settings are chosen by."""
    pair.end_models()
    for way in WAYS:
        for given in way.grid:
            pair.measure(way, given, SEEDS[0] if way.learns else None)


def chosen(cells: Cells, way: Way) -> Given:
    """The settings of the highest accuracy over the tuning pairs, of the lowest loss among equals."""

    def reached(given: Given) -> tuple[float, float]:
        seed = SEEDS[0] if way.learns else None
        found = [cells.found[cell_name("tuning", pair, WIDTH, what(way, given, seed))] for pair in TUNING]
        return round(fmean(cell["accuracy"] for cell in found), 6), -fmean(cell["loss"] for cell in found)

    return max(way.grid, key=reached)


def equal_time(cells: Cells, way: Way) -> int:
    """How many steps of a distillation take a processor as long as learned matching does, on the tuning pairs."""
    learned = next(one for one in LEARNING[way.seen] if one.then != DISTILLED)
    best = cells.found["chosen"]
    theirs, ours = (
        fmean(
            cells.found[cell_name("tuning", pair, WIDTH, what(one, best[one.key], SEEDS[0]))]["seconds"]
            for pair in TUNING
        )
        for one in (way, learned)
    )
    return round(STEPS * ours / theirs / 10) * 10


def measure_test(pair: Pair, best: dict[str, Given], ways: Sequence[Way], seed: int) -> None:
    """The cells of the table, for one seed of learning; what sees weights alone is measured with the first."""
    pair.end_models()
    for way in ways:
        if way.learns:
            pair.measure(way, best[way.key], seed)
        elif seed == SEEDS[0]:
            pair.measure(way, best[way.key])


def measure(cells: Cells, folder: Path) -> None:
    """All cells that are missing, those of the first tables first."""
    split = Split.tuning()
    for seed in TUNING:
        measure_tuning(Pair(split, (seed, seed + 1), WIDTH, cells, folder))
    best: dict[str, Any] = {way.key: chosen(cells, way) for way in WAYS}
    cells.keep("chosen", best)
    rivals = [way for ways in LEARNING.values() for way in ways if way.then == DISTILLED]
    if "equal time" not in cells.found:
        cells.keep("equal time", {way.key: equal_time(cells, way) for way in rivals})
    split = Split.test()
    pairs, further = (
        [Pair(split, (seed, seed + 1), WIDTH, cells, folder) for seed in seeds] for seeds in (TEST, FURTHER)
    )
    alone = [way for way in WAYS if way.seen == "none"]
    for seed, pair in itertools.product(SEEDS, pairs):
        measure_test(pair, best, WAYS, seed)
    for pair in further:
        measure_test(pair, best, alone, SEEDS[0])
    for seed, pair, way in itertools.product(SEEDS, pairs, rivals):
        pair.measure(way, best[way.key], seed, steps=cells.found["equal time"][way.key])
    for seed, pair, count, way in itertools.product(SEEDS, pairs, COUNTS, LEARNING["images"]):
        pair.measure(way, best[way.key], seed, count=count)
    others = [Pair(split, (seed, seed + 1), width, cells, folder) for width in OTHER_WIDTHS for seed in TEST]
    for seed, pair in itertools.product(SEEDS, others):
        measure_test(pair, best, [*alone, LEARNING["images"][0]], seed)


def write_page(file: Path) -> None:
    """Write the page beside the cells."""
    with atomic_file(file.with_suffix(".md"), overwrite=True) as temporary:
        temporary.write_text(page(Cells(file).found, SHOWN), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, default=ROOT / "docs" / "results" / "digits.json")
    parser.add_argument("--models", type=Path, default=ROOT / "checkpoints" / "digits_pairs")
    parser.add_argument("--page", action="store_true", help="write the page from the cells, and measure nothing")
    args = parser.parse_args()
    quiet(1)
    if not args.page:
        measure(Cells(args.cells), args.models)
    write_page(args.cells)
    return 0


if __name__ == "__main__":
    sys.exit(main())
