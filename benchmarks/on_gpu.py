"""All that this project wants to know of a GPU, in pieces of less than nine minutes.

    python benchmarks/on_gpu.py --accelerator gpu --cifar CIFAR10 --shakespeare tiny_shakespeare.parquet

runs every piece that is not done yet, and writes docs/results/on_gpu.json after each and the page docs/results/gpu.md
beside it. It goes on where it was stopped; `--count 1` runs one piece and ends, for a machine that is lent for minutes.
A training is several such calls. Pieces whose files are not named are left out. `--page` writes the page alone.

    python benchmarks/on_gpu.py --accelerator cpu --small --folder FOLDER

goes through all of it with tiny models on the processor, into a folder of its own.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

from cells import Cells
from gpu_page import page
from gpu_pieces import MissingError, pieces
from settings import quiet

from fusionlab.atomic import atomic_file
from fusionlab.errors import InputError
from fusionlab.trainers import device_of

RESULTS = Path(__file__).parent.parent / "docs" / "results"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accelerator", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--pieces", nargs="+", metavar="WORDS", help="only pieces whose names hold one of these")
    parser.add_argument("--count", type=int, help="run so many pieces at most")
    parser.add_argument("--minutes", type=float, default=8, help="of a training in one call")
    parser.add_argument("--runs", type=int, default=5, help="that medians are taken of")
    parser.add_argument("--rounds", type=int, default=200_000, help="of an auction, at most")
    parser.add_argument("--points", type=int, default=21, help="on a line, both ends included")
    parser.add_argument("--epochs", type=int, help="of every training; those of its config if not given")
    parser.add_argument("--precision", default="32-true", help="of learning and distillation")
    parser.add_argument("--cifar", help="folder of CIFAR-10 as Parquet files")
    parser.add_argument("--image-column", default="image")
    parser.add_argument("--split-column", default=None)
    parser.add_argument("--shakespeare", help="Tiny Shakespeare as a Parquet file with a column of splits")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--small", action="store_true", help="tiny models, a step or two of everything")
    parser.add_argument("--folder", type=Path, default=Path("checkpoints/on_gpu"), help="of end models")
    parser.add_argument("--page", action="store_true", help="write the page of what is measured")
    args = parser.parse_args(argv)
    # Numbers of tiny models or of a processor are no results.
    results = RESULTS if args.accelerator == "gpu" and not args.small else args.folder
    results.mkdir(parents=True, exist_ok=True)
    cells, known = Cells(results / "on_gpu.json"), pieces()
    if not args.page:
        try:
            device_of(args.accelerator)
        except InputError as error:
            print(error, file=sys.stderr)
            return 2
        quiet(args.threads)
        _run(args, cells)
    with atomic_file(results / "gpu.md", overwrite=True) as temporary:
        temporary.write_text(page(cells.found, list(known)), encoding="utf-8")
    return 0


def _run(args: argparse.Namespace, cells: Cells) -> None:
    """Run what is not done; a training that is not finished counts as a piece."""
    done = 0
    for name, piece in pieces().items():
        if name in cells.found or (args.pieces and not any(words in name for words in args.pieces)):
            continue
        if args.count is not None and done >= args.count:
            return
        start = time.perf_counter()
        try:
            found = piece(args)
        except MissingError as error:
            print(f"left out: {name}: {error}", file=sys.stderr)
            continue
        done += 1
        seconds = time.perf_counter() - start
        if found is None:
            print(f"goes on in the next call: {name}, {seconds:.0f} s", file=sys.stderr)
            continue
        cells.keep(name, {**found, "took": seconds})
        print(f"done: {name}, {seconds:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
