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
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

from cells import Cells
from encoders_cells import BertPair
from encoders_page import page
from encoders_ways import PLAN
from settings import quiet

from fusionlab.atomic import atomic_file

ROOT = Path(__file__).parents[1]


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
        PLAN.measure(cells, lambda split, pair: BertPair(split, pair, cells, args), args.count)
    with atomic_file(args.results / "encoders.md", overwrite=True) as temporary:
        temporary.write_text(page(cells.found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
