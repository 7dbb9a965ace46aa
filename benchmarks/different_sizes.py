"""A small and a large model of different seeds: what is left half way between them, once the small one is grown.

    python benchmarks/different_sizes.py --seeds 1 2 3 --large 80x4 80x6 --markdown results.md

Vision transformers on scikit-learn's digits, trained here on 1,300 images; the small model has one seed, the large one
another. Matching and distillation look at 1,400 training images without labels, everything is measured on 397 test
images that nothing else sees. Nothing is tuned: every option has its default. The rivals are the larger and the smaller
end model, distilled towards the mean output of both in as many steps.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from digits_rows import digits, digits_model
from settings import Line, Setting, batches, keep, quiet, show
from torch import Tensor, nn

import fusionlab
from fusionlab.growing import grown
from fusionlab.polish import PolishOptions, polish


def size(text: str) -> tuple[int, int]:
    """A width and a number of layers, written as 80x6."""
    width, layers = text.split("x")
    return int(width), int(layers)


@torch.no_grad()
def guesses(model: nn.Module, setting: Setting) -> Tensor:
    """The classes that a model gives the test images."""
    return torch.cat([model(pixel_values=batch["pixel_values"]).logits.argmax(1) for batch in setting.test])


def agreement(model: nn.Module, setting: Setting) -> str:
    """The share of those test images, on which the two end models differ, that a model takes as each of them does."""
    small, large = (guesses(end, setting) for end in setting.groups[0])
    found, differ = guesses(model, setting), small != large
    count = int(differ.sum())
    shares = [int((found == end)[differ].sum()) for end in (small, large)]
    return f"with the small {shares[0]}, with the large {shares[1]} of {count}"


def rows(small: nn.Module, large: nn.Module, name: str, steps: int) -> Iterator[tuple[Line, str]]:
    """The lines of one pair, and in words what belongs to no column."""
    train, test = digits()
    images = batches(train)
    pair = Setting(name, [[small, large]], test)
    growth = grown(small, large, images)
    told = f"{growth.parameters[0]:,} to {growth.parameters[1]:,} parameters, exact to {growth.exact:.0e}, layers at "
    yield pair.line("small end model", [pair.measure(small)]), ""
    yield pair.line("large end model", [pair.measure(large)]), ""
    places = [str(stack.positions) for stack in growth.placements] or ["their own places"]
    yield pair.line("small end model, grown", [pair.measure(growth.model)]), f"{told}{places[0]}"
    yield pair.matched("plain mean after growth", preset="none"), ""
    yield pair.matched("weights", preset="weights"), ""
    start = time.perf_counter()
    twins = fusionlab.align([small, large], anchor=1, preset="learned", data=images, steps=steps)
    merge, seconds = fusionlab.merge(twins), time.perf_counter() - start
    learned = pair.line(f"learned, {steps} steps", [pair.measure(merge)], [pair.barrier(twins)], seconds)
    yield learned, agreement(merge, pair)
    for which, model in (("larger", large), ("smaller", small)):
        start = time.perf_counter()
        distilled = polish(model, [small, large], images, PolishOptions(steps=steps))
        line = pair.line(f"both distilled into the {which}", [pair.measure(distilled)], (), time.perf_counter() - start)
        yield line, agreement(distilled, pair)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5], help="of the small models")
    parser.add_argument("--apart", type=int, default=100, help="what is added to a seed for the large model's")
    parser.add_argument("--small", type=size, default=(48, 4), help="width and layers")
    parser.add_argument("--large", nargs="+", type=size, default=[(80, 4), (80, 6)], help="widths and layers")
    parser.add_argument("--epochs", type=int, help="of training, those of vit_digits.yaml if not given")
    parser.add_argument("--steps", type=int, default=300, help="of learning and distillation")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--markdown", type=Path, metavar="OUT", help="also write the table here")
    args = parser.parse_args()
    quiet(args.threads)
    lines: list[Line] = []
    for seed in args.seeds:
        small = digits_model(seed, args.small[0], None, args.small[1], args.epochs)
        for width, layers in args.large:
            large = digits_model(seed + args.apart, width, None, layers, args.epochs)
            name = f"{args.small[0]}x{args.small[1]} (seed {seed}) with {width}x{layers} (seed {seed + args.apart})"
            for line, told in rows(small, large, name, args.steps):
                lines.append(line)
                print("  ".join(filter(None, [*line.cells(), told])), file=sys.stderr, flush=True)
                if args.markdown:
                    keep(lines, args.markdown)
    show(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
