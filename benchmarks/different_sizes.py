"""A small and a large model of different seeds: what is left half way between them, once the small one is grown.

    python benchmarks/different_sizes.py
    python benchmarks/different_sizes.py --page

The first command trains what is missing in `checkpoints/different_sizes`, measures what is missing in
`docs/results/different_sizes.json`, and goes on where it was stopped. Then, as the second does alone, it writes
`docs/results/different_sizes.md` from that file. Places of layers are chosen on tuning pairs, and the tables are of
other pairs.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

from cells import Cells
from different_sizes_page import Shown, page
from settings import quiet
from sizes_freedom import measure as measure_freedom
from sizes_measures import STEPS, Images, Pair, cell_name
from sizes_tasks import TaskPair

from fusionlab.atomic import atomic_file

ROOT = Path(__file__).parents[1]
# Pairs by the seed of the small model; the large one's seed is one more, and a hundred more.
TUNING, TEST = (31, 41, 51, 61), (1, 2, 3, 4, 5)
# Tuning pairs that are learned too.
TUNING_LEARNED = (31, 41)
LARGE = ((80, 6), (80, 4))
DEEP = (80, 6)
# Of learning and of distillation.
SEEDS = (0, 1, 2)
END_OF_SHARE = (1, 2, 4, 5)
# Where linear CKA of activations on the training images put the layers of each tuning pair, at 4d6be43.
MOST_ALIKE: dict[int, tuple[int, ...]] = {31: (0, 1, 4, 5), 41: (0, 1, 4, 5), 51: (0, 1, 2, 3), 61: (0, 1, 2, 3)}
OTHERS = ((0, 2, 3, 5), (1, 2, 3, 5), (1, 3, 4, 5), (2, 3, 4, 5))


def measure_tuning(pair: Pair) -> None:
    """The cells that places of layers are chosen by, and the steps of a distillation that takes as long."""
    alike = MOST_ALIKE[pair.seeds[0]]
    for places in dict.fromkeys((END_OF_SHARE, alike, *OTHERS)):
        pair.placed(f"weights {places}", places, "weights")
    pair.placed(f"zeros {END_OF_SHARE}", END_OF_SHARE, "weights", fill=False)
    if pair.seeds[0] in TUNING_LEARNED:
        how: dict[str, Any] = {"data": pair.images.train, "steps": STEPS, "unseen": False}
        for places in (END_OF_SHARE, alike):
            pair.placed(f"learned {places}", places, "learned", **how)
        pair.placed(f"nearer {END_OF_SHARE}", END_OF_SHARE, "learned", concentration=3.0, **how)
        pair.distilled("large", STEPS, 0)


def measure_test(pair: Pair, seed: int) -> None:
    """The cells of the tables, for one seed of learning; distillations come last."""
    pair.end_models()
    pair.matched("none", "none")
    pair.matched("weights", "weights")
    pair.learned(seed)


def steps_of_equal_time(cells: Cells) -> int:
    """How many steps of distillation into the larger model take as long as learned matching, on tuning pairs."""
    learned, distilled = (
        sum(cells.found[cell_name("tuning", seed, DEEP, what(seed))]["seconds"] for seed in TUNING_LEARNED)
        for what in (lambda seed: f"learned {MOST_ALIKE[seed]}", lambda _: f"large {STEPS} 0")
    )
    return round(STEPS * learned / distilled / 10) * 10


def write_page(results: Path) -> None:
    """Write the page from the cells of this command and of `sizes_trained.py`.

    Args:
        results: the folder of the cells and of the page.
    """
    digits, trained = (Cells(results / f"{name}.json").found for name in ("different_sizes", "sizes_trained"))
    text = page(digits, trained, Shown(TUNING, TEST, SEEDS, LARGE, DEEP, END_OF_SHARE, MOST_ALIKE, OTHERS))
    with atomic_file(results / "different_sizes.md", overwrite=True) as temporary:
        temporary.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "results", help="folder of cells and page")
    parser.add_argument("--models", type=Path, default=ROOT / "checkpoints" / "different_sizes")
    parser.add_argument("--page", action="store_true", help="write the page from the cells, and measure nothing")
    args = parser.parse_args()
    quiet(1)
    cells = Cells(args.results / "different_sizes.json")
    if not args.page:
        images = Images.load()
        for seed in TUNING:
            measure_tuning(Pair("tuning", (seed, seed + 1), DEEP, images, cells, args.models))
        for seed, size in itertools.product(TUNING, LARGE):
            measure_freedom(Pair("tuning", (seed, seed + 1), size, images, cells, args.models))
        if "equal time" not in cells.found:
            cells.keep("equal time", {"steps": steps_of_equal_time(cells)})
        pairs = [
            Pair("test", (seed, seed + 100), size, images, cells, args.models)
            for size, seed in itertools.product(LARGE, TEST)
        ]
        for seed, pair in itertools.product(SEEDS, pairs):
            measure_test(pair, seed)
        for size, seed in itertools.product(LARGE, TEST):
            TaskPair((seed, seed + 100), size, images, cells, args.models).measure()
        for seed, pair, end in itertools.product(SEEDS, pairs, ("large", "small")):
            pair.distilled(end, cells.found["equal time"]["steps"], seed)
    write_page(args.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
