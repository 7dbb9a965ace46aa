"""How near models come by matching by weights: fine-tunes that were brought into another basis, and strangers.

    python benchmarks/moved.py
    python benchmarks/moved.py --pairs A B C D

ViTs are trained on digits here, of seeds that the rule was chosen on; further pairs are folders of end models. `fuse`
without data learns nothing more where the cosine is at least `fusionlab.advice.moved.NEAR`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from advice_pairs import moved, other_seeds
from settings import quiet

import fusionlab
from fusionlab.advice.moved import matched_cosine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[411, 412], help="of the ViTs")
    parser.add_argument("--pairs", nargs="+", type=Path, default=[], metavar="FOLDER", help="end models, two by two")
    args = parser.parse_args()
    quiet(1)
    for seed in args.seeds:
        for make in (moved, other_seeds):
            pair = make(seed, None)
            print(f"{pair.kind}, seed {seed}: {matched_cosine(pair.models):.3f}", flush=True)
    for first, second in zip(args.pairs[::2], args.pairs[1::2], strict=True):
        print(f"{first.name}, {second.name}: {matched_cosine([fusionlab.load(first), fusionlab.load(second)]):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
