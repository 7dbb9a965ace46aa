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
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

from cells import Cells
from digits_pairs_cells import STEPS, Pair, Split
from digits_pairs_page import Shown, page
from digits_ways import ALONE, CLOSED, LEARNING, WAYS, cell_name
from settings import quiet
from ways import DISTILLED, Given, Way, best_of, equal_steps, what

from fusionlab.atomic import atomic_file

ROOT = Path(__file__).parents[1]
# Pairs by the first one's seed; the second's is one more. Further ones are for what sees no data and does not learn.
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
    """The settings of a way that are best over the tuning pairs."""
    seed = SEEDS[0] if way.learns else None
    return best_of(
        way.grid,
        lambda given: [cells.found[cell_name("tuning", pair, WIDTH, what(way, given, seed))] for pair in TUNING],
    )


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
    return equal_steps(STEPS, ours, theirs)


@dataclass(frozen=True)
class Job:
    """A cell of the test pairs.

    Attributes:
        part: of the page that it is for.
        pair: the first model's seed.
        width: of both models.
        way: to one model.
        seed: of learning, for ways that learn.
        how: further arguments of `Pair.measure`.
        more: settings beside those that were chosen.
    """

    part: str
    pair: int
    width: int
    way: Way
    seed: int | None
    how: dict[str, int] = field(default_factory=dict)
    more: Given = field(default_factory=dict)

    def settings(self, best: dict[str, Given]) -> Given:
        """The chosen settings of its way, and those beside them."""
        return best[self.way.key] | self.more

    def name(self, best: dict[str, Given]) -> str:
        """The name of the cell."""
        return cell_name("test", self.pair, self.width, what(self.way, self.settings(best), self.seed, **self.how))


def jobs(found: dict[str, Any]) -> Iterator[Job]:
    """All cells of the test pairs once settings are chosen, those of the first tables first."""
    alone = [way for way in WAYS if way.seen == "none"]
    for seed, pair, way in itertools.product(SEEDS, TEST, WAYS):
        # A variant stands beside its way for comparison, with one seed.
        if not way.variant or seed == SEEDS[0]:
            yield from _jobs("the main table", pair, WIDTH, way, seed)
    for pair, way in itertools.product(FURTHER, CLOSED):
        yield from _jobs("ten pairs", pair, WIDTH, way, SEEDS[0])
    rivals = [way for ways in LEARNING.values() for way in ways if way.then == DISTILLED]
    for seed, pair, way in itertools.product(SEEDS, TEST, rivals):
        yield from _jobs("equal time", pair, WIDTH, way, seed, steps=found["equal time"][way.key])
    for seed, pair, count, way in itertools.product(SEEDS, TEST, COUNTS, LEARNING["images"]):
        yield from _jobs("few images", pair, WIDTH, way, seed, images=count)
        if way.then != DISTILLED and seed == SEEDS[0]:
            yield Job("few images", pair, WIDTH, way, seed, {"images": count}, ALONE)
    for seed, width, pair, way in itertools.product(SEEDS, OTHER_WIDTHS, TEST, [*alone, LEARNING["images"][0]]):
        yield from _jobs(f"{width} wide", pair, width, way, seed)


def _jobs(part: str, pair: int, width: int, way: Way, seed: int, **how: int) -> Iterator[Job]:
    """One cell, or none where a way that does not learn was measured with the first seed."""
    if way.learns:
        yield Job(part, pair, width, way, seed, how)
    elif seed == SEEDS[0]:
        yield Job(part, pair, width, way, None, how)


def missing(found: dict[str, Any]) -> Counter[str]:
    """How many cells of each part of the page are not measured yet."""
    names = ((job.part, job.name(found["chosen"])) for job in jobs(found))
    return Counter(part for part, name in names if name not in found)


def measure(cells: Cells, folder: Path, parts: Container[str] = (), only: Container[int] = ()) -> None:
    """The cells that are missing.

    Args:
        cells: where they are kept.
        folder: of the end models.
        parts: of the page, of test pairs; all if empty.
        only: test pairs by the first one's seed; all if empty.
    """
    split = Split.tuning()
    for seed in TUNING:
        measure_tuning(Pair(split, (seed, seed + 1), WIDTH, cells, folder))
    best: dict[str, Any] = {way.key: chosen(cells, way) for way in WAYS}
    cells.keep("chosen", best)
    rivals = [way for ways in LEARNING.values() for way in ways if way.then == DISTILLED]
    if "equal time" not in cells.found:
        cells.keep("equal time", {way.key: equal_time(cells, way) for way in rivals})
    split, pairs = Split.test(), dict[tuple[int, int], Pair]()
    for job in jobs(cells.found):
        if (parts and job.part not in parts) or (only and job.pair not in only):
            continue
        place = job.pair, job.width
        if place not in pairs:
            pairs[place] = Pair(split, (job.pair, job.pair + 1), job.width, cells, folder)
            pairs[place].end_models()
        pairs[place].measure(job.way, job.settings(best), job.seed, **job.how)


def write_page(file: Path) -> None:
    """Write the page beside the cells."""
    found = Cells(file).found
    with atomic_file(file.with_suffix(".md"), overwrite=True) as temporary:
        temporary.write_text(page(found, SHOWN, missing(found)), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, default=ROOT / "docs" / "results" / "digits.json")
    parser.add_argument("--models", type=Path, default=ROOT / "checkpoints" / "digits_pairs")
    parser.add_argument("--page", action="store_true", help="write the page from the cells, and measure nothing")
    parser.add_argument("--parts", nargs="*", default=[], help="of the page, to measure alone: 'few images', '32 wide'")
    parser.add_argument("--pairs", nargs="*", type=int, default=[], help="first seeds of test pairs to measure alone")
    args = parser.parse_args()
    quiet(1)
    if not args.page:
        measure(Cells(args.cells), args.models, args.parts, args.pairs)
    write_page(args.cells)
    return 0


if __name__ == "__main__":
    sys.exit(main())
