"""Small BERTs that were pretrained from other seeds and fine-tuned on two sets of emotions: what makes one of two.

    python benchmarks/encoders.py
    python benchmarks/encoders.py --page

The first command pretrains what is missing in `checkpoints` (half an hour of a core each; `bert_small_mlm.yaml` says
how their tokenizer is made), fine-tunes it, measures what is missing in `docs/results/encoders.json`, and goes on where
it was stopped. Then, as the second does alone, it writes `docs/results/encoders.md` from that file. Settings are chosen
on validation texts of the tuning pairs. `--small` goes through it with tiny models and a step of everything.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

from cells import Cells
from encoders_cells import BertPair, cell_name
from encoders_page import page
from encoders_ways import LEARNING, SEEDS, STEPS, TEST, TUNING, WAYS
from settings import quiet
from ways import DISTILLED, Given, Way, equal_steps, what

from fusionlab.atomic import atomic_file

ROOT = Path(__file__).parents[1]


def chosen(found: dict[str, Any], way: Way) -> Given:
    """The settings of the highest mean score over the tuning pairs."""

    def reached(given: Given) -> float:
        seed = SEEDS[0] if way.learns else None
        return fmean(fmean(found[cell_name("tuning", pair, what(way, given, seed))]["scores"]) for pair in TUNING)

    return max(way.grid, key=reached)


def equal_time(found: dict[str, Any], way: Way) -> int:
    """How many steps of a distillation take a processor as long as learned matching does, on the tuning pairs."""
    learned = next(one for one in LEARNING if one.then != DISTILLED)
    theirs, ours = (
        fmean(
            found[cell_name("tuning", pair, what(one, found["chosen"][one.key], SEEDS[0]))]["seconds"]
            for pair in TUNING
        )
        for one in (way, learned)
    )
    return equal_steps(STEPS, ours, theirs)


def jobs(found: dict[str, Any]) -> Iterator[tuple[tuple[int, int], Way, int | None, int | None]]:
    """Pair, way, seed of learning and steps of all cells of the test pairs, those of the first seed first."""
    for seed in SEEDS:
        for pair in TEST:
            for way in WAYS:
                if way.learns or seed == SEEDS[0]:
                    yield pair, way, seed if way.learns else None, None
        for pair in TEST:
            for way in LEARNING:
                if way.then == DISTILLED:
                    yield pair, way, seed, found["equal time"][way.key]


def measure(cells: Cells, args: argparse.Namespace) -> None:
    """Measure what is missing, as many cells as were asked for."""
    left = args.count if args.count is not None else sys.maxsize
    for seeds in TUNING:
        pair = BertPair("tuning", seeds, cells, args)
        pair.end_models()
        for way in WAYS:
            for given in way.grid:
                left -= pair.measure(way, given, SEEDS[0] if way.learns else None)
                if left == 0:
                    return
    cells.keep("chosen", {way.key: chosen(cells.found, way) for way in WAYS})
    if "equal time" not in cells.found:
        rivals = [way for way in LEARNING if way.then == DISTILLED]
        cells.keep("equal time", {way.key: equal_time(cells.found, way) for way in rivals})
    pairs: dict[tuple[int, int], BertPair] = {}
    for seeds, way, seed, steps in jobs(cells.found):
        if seeds not in pairs:
            pairs[seeds] = BertPair("test", seeds, cells, args)
            pairs[seeds].end_models()
        left -= pairs[seeds].measure(way, cells.found["chosen"][way.key], seed, steps)
        if left == 0:
            return


def missing(found: dict[str, Any]) -> int:
    """How many cells of the test pairs are not measured yet."""
    names = (
        cell_name("test", pair, what(way, found["chosen"][way.key], seed, steps=steps))
        for pair, way, seed, steps in jobs(found)
    )
    return sum(name not in found for name in names)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, default=ROOT / ".." / "shared" / "data" / "emotion", help="their folder")
    parser.add_argument("--models", type=Path, default=ROOT / "checkpoints", help="folder of encoders and fine-tunes")
    parser.add_argument("--tokenizer", type=Path, default=ROOT / "checkpoints" / "bert_small_tokenizer")
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "results", help="folder of cells and page")
    parser.add_argument("--count", type=int, help="measure so many cells at most")
    parser.add_argument("--small", action="store_true", help="tiny models, a step or two of everything")
    parser.add_argument("--page", action="store_true", help="write the page from the cells, and measure nothing")
    args = parser.parse_args(argv)
    cells = Cells(args.results / "encoders.json")
    quiet(1)
    if not args.page:
        args.results.mkdir(parents=True, exist_ok=True)
        measure(cells, args)
    with atomic_file(args.results / "encoders.md", overwrite=True) as temporary:
        left = missing(cells.found) if "equal time" in cells.found else None
        temporary.write_text(page(cells.found, left), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
