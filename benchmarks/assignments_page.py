"""The page about assignments that follow the loss, written from what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from assignment_trials import PASSES
from assignments_rows import (
    BATCH,
    BLOCKS,
    COLD,
    KINDS,
    MARK,
    OLDER,
    PAIRS,
    RATES,
    ROWS,
    SCORED,
    STEPS,
    SWEEPS,
    TESTED,
    TUNED,
    WARM,
    cell,
    wanted,
)
from intervals import half_width

from fusionlab.learning.supplement import SYNTHETIC


def page(found: dict[str, Any]) -> str:
    """The whole page.

    Args:
        found: all cells.
    """
    return "\n".join([_introduction(), *(_table(found, kind) for kind in KINDS), _swaps(found)])


def _table(found: dict[str, Any], kind: str) -> str:
    rows = [_line(found, kind, name) for name, row in ROWS.items() if kind in row.kinds]
    head = " | ".join(f"{one} and {other}" for one, other in PAIRS)
    table = [f"| barrier, seeds | {head} | mean of test pairs | seconds |", f"|---|{'---:|' * (len(PAIRS) + 2)}", *rows]
    every = [cell(kind, *one) for one in wanted(kind)]
    missing = [name for name in every if name not in found]
    left = f"Not measured so far: {len(missing)} of {len(every)} cells, which are empty.\n" if missing else ""
    return "\n".join([f"## {KINDS[kind].title}\n", *table, "", left])


def _line(found: dict[str, Any], kind: str, row: str) -> str:
    cells = [found.get(cell(kind, pair, row)) for pair in PAIRS]
    barriers = [f"{one['barrier']:.3f}" if one else "" for one in cells]
    tested = [found[cell(kind, pair, row)]["barrier"] for pair in TESTED if cell(kind, pair, row) in found]
    mean = _mean(tested) if len(tested) == len(TESTED) else ""
    seconds = f"{fmean(one['seconds'] for one in cells if one):.0f}" if any(cells) else ""
    words = ROWS[row].words + (MARK if row in OLDER else "")
    return f"| {' | '.join([words, *barriers, mean, seconds])} |"


def _mean(values: Sequence[float]) -> str:
    return f"{fmean(values):.3f} ± {half_width(values):.3f}"


def _swaps(found: dict[str, Any]) -> str:
    """What was found of swaps, in words."""
    parts = []
    for row, when in (("swaps", "before the descent"), ("after", "after it")):
        names = [cell("gpt2", pair, row) for pair in PAIRS]
        sweeps = [found[name]["swaps"] for name in names if name in found]
        if sweeps:
            told = "; ".join(", ".join(f"{better:,} ({taken})" for better, taken in one) for one in sweeps)
            parts.append(f"{when} {told}")
    intro = "Of the 2,016 swaps of GPT-2s so many improved by themselves (so many were taken), sweep by sweep and pair"
    return f"{intro}\nby pair: {'; '.join(parts)}.\n" if parts else ""


def _introduction() -> str:
    blocks, judges = SCORED
    tuned = f"{TUNED[0][0]} and {TUNED[0][1]}"
    return f"""# Assignments that follow the loss

    python benchmarks/assignments.py

That command writes this page from [`assignments.json`](assignments.json); no number is typed by hand. Two tied GPT-2s
of 3 layers, 64 wide (`gpt2_shakespeare_small.yaml`, bytes of Tiny Shakespeare) can be brought together by permutations
of the stream only; inside heads, and in factors of gains, matching learns. Is it the order of the stream that keeps a
barrier, and does an assignment that follows the loss find a better one than weights do? The same holds of two small
DeBERTas (`deberta_shakespeare_small.yaml`, which fill in masked bytes), on which `learned` alone is measured.

The pair of seeds {tuned} is the one that settings were chosen on, and is measured on 400 blocks of the validation
text; the others on 400 blocks of the test text. Given is the barrier on the line between the twins at five points, in
nats, and its mean over the test pairs with half the width of a 95 % interval (Student's t) once all are measured.
Rows of `learned` are that, annealed by weights at the start unless they say otherwise; all others take {STEPS} steps of
{BATCH} blocks from what `weights` finds, unless they say otherwise, and never try an assignment by weights. All draw
from {BLOCKS:,} blocks of 128 bytes, which are half of the training text, but rows that name a stride: there a block
starts every so many bytes of the whole text. Rows without data see no text but {BLOCKS:,} that the two models write,
half of them each, or random tokens. Rows of 16 and 256 blocks see the first of these; beside them are up to
{SYNTHETIC:,} texts that the models write, fewer the more blocks there are. Seconds are of processor time, the end
models' answers and the writing included, a mean over the pairs that are measured, on busy machines.{MARK}: on other
end models of the same seeds, which another processor trained. Rows from activations alone were measured when `learned`
took these by itself, from 1,024 rows of
each map.

- *Swaps*: all 2,016 exchanges of two channels of the stream, with all else of the twin as it is, are scored by the
  exact loss half way on {blocks} blocks. Those that improve are tried again, the best first, on {judges} others, and
  taken where the loss falls; {SWEEPS} times, or once after the descent.
- *Straight-through* (as Theus et al., 2025): numbers whose nearest permutation is used, and which take the gradient as
  if they were used themselves (rate {RATES["straight"]}).
- *Sinkhorn with annealing*: a doubly stochastic matrix in the permutation's place, of numbers that are learned at rate
  {RATES["sinkhorn"]}, under a temperature that falls from {WARM} to {COLD}; then its nearest permutation.
  *Differentiated implicitly* (Pena et al., 2023): with the gradient of the limit of its scaling, by a linear system, in
  place of that through {PASSES} passes.
"""
