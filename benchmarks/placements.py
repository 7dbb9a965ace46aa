"""Where layers of a small model should go among those of a larger one: the merge half way by weights, for some places.

    python benchmarks/placements.py --pairs 31/32 41/42 --places 1,2,4,5 0,2,3,5

Vision transformers on scikit-learn's digits, trained here; a pair is the small model's seed and the large one's. The
small model has as many layers as there are places in a list and is 48 wide; the large one is 80 wide. These are pairs
to choose a default by: docs/results/different_sizes.md measures on others.
"""

from __future__ import annotations

import argparse
import sys
from unittest.mock import patch

import torch
from digits_rows import digits, digits_model
from settings import Setting, batches, quiet

import fusionlab
from fusionlab.growing import grown
from fusionlab.growing.layers import place
from fusionlab.growing.likeness import unlikeness


def half_way(pair: Setting, places: tuple[int, ...], depth: int) -> float:
    """The accuracy of the mean of both models, matched by weights, with the small one's layers in some places."""
    small, large = pair.groups[0]
    cost = torch.ones(len(places), depth)
    cost[range(len(places)), places] = 0
    with patch("fusionlab.growing.growth.unlikeness", return_value={"vit.layers": cost}):
        twin = grown(small, large, pair.test, fill=True).model
    return pair.measure(fusionlab.merge(fusionlab.align([twin, large], anchor=1, preset="weights")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", nargs="+", default=["31/32", "41/42", "51/52", "61/62"], help="seeds")
    parser.add_argument("--places", nargs="+", default=["1,2,4,5", "0,2,3,5", "1,3,4,5", "1,2,3,5", "2,3,4,5"])
    parser.add_argument("--layers", type=int, default=6, help="of the large model")
    parser.add_argument("--epochs", type=int, default=30, help="of training")
    args = parser.parse_args()
    quiet(1)
    train, test = digits()
    images = batches(train)
    for name in args.pairs:
        seeds = [int(seed) for seed in name.split("/")]
        lists = [tuple(int(place) for place in text.split(",")) for text in args.places]
        small = digits_model(seeds[0], 48, None, len(lists[0]), args.epochs)
        large = digits_model(seeds[1], 80, None, args.layers, args.epochs)
        alike = place(unlikeness(small, large, images)["vit.layers"].double())
        for places in dict.fromkeys([*lists, *([alike] if alike else [])]):
            found = half_way(Setting(name, [[small, large]], test), places, args.layers)
            note = " (where activations are most alike)" if places == alike else ""
            print(f"{name} {places}: {100 * found:.1f}{note}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
