"""Learned matching by several optimisers: what they reach in as many looks at the data, and in half as many.

    python benchmarks/optimisers.py
    python benchmarks/optimisers.py --page

The first command trains what is missing of the tuning models of `digits_pairs.py` and `assignments.py`, measures
what is missing in `docs/results/optimisers.json`, and goes on where it was stopped. Then, as the second does alone,
it writes `docs/results/optimisers.md` from that file.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import assignments
import torch
from cells import Cells
from digits_models import kept_model
from digits_pairs import TUNING, WIDTH
from digits_pairs_cells import HELD_OUT, Split
from optimisers_tried import TRIED, TriedRefinement
from settings import Batch, quiet
from torch import nn

import fusionlab
from fusionlab.atomic import atomic_file
from fusionlab.matching.refine_options import RefineOptions
from fusionlab.stages import result_of, run

ROOT = Path(__file__).parents[1]
POINTS = 21
# Examples of a step.
BATCHES = {"digits": 128, "gpt2": 32}
TEXT_PAIRS = ((11, 12), (13, 14))
# What is measured: optimisers, and looks.
DIGITS = [(name, looks) for name in TRIED for looks in (300, 150)]
GPT2 = [(name, 300) for name in ("adamw", "muon 0.005", "muon")]


@cache
def pairs(kind: str, models: Path, shakespeare: str) -> list[tuple[list[nn.Module], list[Batch], list[Batch]]]:
    """The tuning pairs of a kind: both models, inputs without labels, and what the line is measured on."""
    if kind == "digits":
        split = Split.tuning()
        inputs = [{"pixel_values": x} for x in torch.cat([batch["pixel_values"] for batch in split.seen]).split(128)]
        return [
            (
                [kept_model(models / "digits_pairs", s, width=WIDTH, val_size=HELD_OUT) for s in (seed, seed + 1)],
                inputs,
                split.scored,
            )
            for seed in TUNING
        ]
    args = argparse.Namespace(small=False, shakespeare=shakespeare, models=models / "assignments")
    trials = [assignments.Trials(seeds, args) for seeds in TEXT_PAIRS]
    return [(one.models, one.inputs, one.test) for one in trials]


def cell_name(kind: str, name: str, looks: int) -> str:
    """A cell's name in the file."""
    return f"{kind} {name} {looks}"


def cells_of(cells: Cells) -> Iterator[tuple[str, str, int]]:
    """The kinds and cells that are not measured."""
    for kind, every in (("digits", DIGITS), ("gpt2", GPT2)):
        yield from ((kind, *one) for one in every if cell_name(kind, *one) not in cells.found)


def measured(kind: str, name: str, looks: int, models: Path, shakespeare: str) -> dict[str, Any]:
    """A cell: barrier and loss half way of every pair, and the mean of the seconds of a processor."""
    found: dict[str, list[float]] = {"barrier": [], "loss": [], "seconds": []}
    for ends, inputs, scored in pairs(kind, models, shakespeare):
        start = time.process_time()
        starts = fusionlab.alignments(ends, anchor=1, preset="weights")
        tried = TRIED[name]
        options = RefineOptions(looks // tried.looks, tried.own, tried.rate, BATCHES[kind])
        if tried.looks > 1:
            # What L-BFGS remembers is of one order of units.
            options = replace(options, every=0)
        stage = TriedRefinement(ends, starts, inputs, options, anchor=1)
        stage.tried = tried
        alignments = run(result_of(stage)).alignments
        found["seconds"].append(time.process_time() - start)
        twins = [one.apply(model) for one, model in zip(alignments, ends, strict=True)]
        line = fusionlab.barrier(twins[0], twins[1], scored, POINTS)
        found["barrier"].append(line.barrier)
        found["loss"].append(line.midpoint_loss)
    return {**found, "seconds": fmean(found["seconds"])}


def page(found: dict[str, Any]) -> str:
    """The page."""
    text = f"""# Optimisers of learned matching

    python benchmarks/optimisers.py

That command writes this page from [`optimisers.json`](optimisers.json); no number is typed by hand. Learned matching
starts from `weights` and takes an optimiser's steps in the coordinates of the groups. Here several take them, on the
tuning pairs of [digits](digits.md) and of [assignments](assignments.md) (tied GPT-2s), measured on validation data: in
as many looks at a batch, one forward and one backward pass each, and in half as many. A rate falls as a cosine. Given
are the highest loss above the straight line between the twins' losses ({POINTS} points), the mean over pairs and each
pair, and the loss half way. Nothing here is of test models: those two pages have Muon beside AdamW on theirs.

*Muon* (Jordan et al., 2024) makes all singular values of the momentum alike, of the skew matrix of a rotation and of a
general matrix. Its rows were measured when a decomposition made them exactly equal and before `learned` had it; there
products bring them near one.
*L-BFGS* looks ten times at each batch and each random point of the line; units stay in the order that they start
in, since what it remembers is of one order.
"""
    for kind, head, count, every in (
        ("digits", "Digits, 64 wide", len(TUNING), DIGITS),
        ("gpt2", "Tied GPT-2s", len(TEXT_PAIRS), GPT2),
    ):
        rows = [_row(*one, found[cell_name(kind, *one)]) for one in every if cell_name(kind, *one) in found]
        if rows:
            text += (
                f"\n## {head}, {count} pairs\n\n| optimiser | looks | barrier | each pair | loss half way | seconds |\n"
                "|---|---:|---:|---|---:|---:|\n" + "\n".join(rows) + "\n"
            )
    return text


def _row(name: str, looks: int, cell: dict[str, Any]) -> str:
    each = ", ".join(f"{barrier:.3f}" for barrier in cell["barrier"])
    loss, seconds = fmean(cell["loss"]), cell["seconds"]
    return f"| {TRIED[name].name} | {looks} | {fmean(cell['barrier']):.3f} | {each} | {loss:.4f} | {seconds:.0f} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "results", help="folder of cells and page")
    parser.add_argument("--models", type=Path, default=ROOT / "checkpoints", help="folder of end models")
    parser.add_argument("--shakespeare", default=str(ROOT.parent / "shared/data/lm/tiny_shakespeare.parquet"))
    parser.add_argument("--page", action="store_true", help="write the page from the cells, and measure nothing")
    args = parser.parse_args()
    quiet(1)
    cells = Cells(args.results / "optimisers.json")
    for one in [] if args.page else list(cells_of(cells)):
        cells.keep(cell_name(*one), measured(*one, args.models, args.shakespeare))
        print(cell_name(*one), cells.found[cell_name(*one)], file=sys.stderr, flush=True)
    with atomic_file(args.results / "optimisers.md", overwrite=True) as temporary:
        temporary.write_text(page(cells.found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
