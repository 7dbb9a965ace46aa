"""Models that never met: what is left half way between models of different seeds, by every way to match them.

    python benchmarks/different_seeds.py --rows demo data none tasks four eight widths --markdown results.md
    python benchmarks/different_seeds.py --rows cifar shakespeare deberta experts
    python benchmarks/different_seeds.py --rows resnets resnets_cifar

Digits (scikit-learn's) are trained from scratch each time; other end models are trained where they are missing in
`checkpoints`, or loaded. All are matched on training data only, without labels unless a row says so, and measured on
test data that nothing else ever sees: 397 images of the digits. `--threads` is for each matrix product: these models
are too small to gain from more than one.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import convolution_rows
import digits_rows
import trained_rows
from settings import Line, keep, quiet, show

from fusionlab.matching.refine_options import RefineOptimizer

DIGITS = ("demo", "data", "none", "tasks", "four", "eight", "widths")
TRAINED = ("cifar", "shakespeare", "deberta", "experts")
CONVOLUTIONS = ("resnets", "resnets_cifar")
ROWS: dict[str, Callable[[argparse.Namespace], Iterator[Line]]] = {
    **{name: getattr(digits_rows, name) for name in DIGITS},
    **{name: getattr(trained_rows, name) for name in TRAINED},
    **{name: getattr(convolution_rows, name) for name in CONVOLUTIONS},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=DIGITS)
    parser.add_argument("--cifar", default="../shared/data/vision/cifar10_jpeg", help="images of the row cifar")
    parser.add_argument(
        "--vits", nargs=2, metavar="FOLDER", help="end models of the row cifar",
        default=[f"../shared/data/models/cifar10_vit_seed{seed}" for seed in (1, 2)],
    )  # fmt: skip
    parser.add_argument("--images", type=int, default=10_000, help="that the row cifar learns from")
    parser.add_argument(
        "--seeds", nargs=2, type=int, default=(0, 1), help="of the pairs of shakespeare, deberta, experts"
    )
    parser.add_argument("--gpt2", default="gpt2_shakespeare_small.yaml", help="config of the row shakespeare")
    parser.add_argument(
        "--embeddings", nargs="+", choices=("tied", "untied"), default=("tied", "untied"), help="of the row shakespeare"
    )
    parser.add_argument(
        "--matchings", nargs="+", choices=(*trained_rows.MATCHINGS, trained_rows.WRITTEN),
        default=trained_rows.MATCHINGS,
        help="of the rows cifar, shakespeare, deberta and experts; written, of texts that models write, not of cifar",
    )  # fmt: skip
    parser.add_argument(
        "--stride", type=int, help="tokens from one training block to the next in the row shakespeare, of all blocks"
    )
    parser.add_argument("--steps", type=int, default=300, help="of learning and polishing, not on digits")
    parser.add_argument("--batch-size", type=int, default=128, help="of learning, not on digits")
    parser.add_argument("--concentration", type=float, help="of the points of learning, not on digits")
    parser.add_argument("--precision", default="32-true", help="of learning and of activations, not on digits")
    parser.add_argument("--widths", nargs="+", type=int, default=[32, 64, 128], help="of the row widths")
    parser.add_argument(
        "--optimizer", choices=get_args(RefineOptimizer), default="muon", help="of learning in the rows four and eight"
    )
    parser.add_argument("--factors", nargs="+", type=int, default=[1, 2, 4], help="of the width in the row resnets")
    parser.add_argument(
        "--resnets", nargs=2, metavar="FOLDER", help="end models of the row resnets_cifar",
        default=[f"checkpoints/resnet_cifar10_seed{seed}" for seed in (0, 1)],
    )  # fmt: skip
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--markdown", type=Path, metavar="OUT", help="also write the table here")
    args = parser.parse_args()
    quiet(args.threads)
    lines: list[Line] = []
    for row in args.rows:
        for line in ROWS[row](args):
            lines.append(line)
            print("  ".join(filter(None, line.cells())), file=sys.stderr, flush=True)
    show(lines)
    if args.markdown:
        keep(lines, args.markdown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
