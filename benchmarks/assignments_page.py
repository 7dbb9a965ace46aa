"""The page about assignments that follow the loss, written from what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from assignment_trials import PASSES
from intervals import half_width

# Seeds of source and anchor: one pair that settings were chosen on, and those of the table.
TUNED, TESTED = ((11, 12),), ((1, 2), (3, 4), (5, 6))
PAIRS = (*TUNED, *TESTED)
# Of the trials' descents.
BATCH, STEPS = 8, 600
# Blocks of training text, of which all rows take the first but those with a stride in bytes.
BLOCKS, STRIDE = 4_000, 32
# Blocks that all swaps are scored on and that decide, and how often all are tried.
SCORED, SWEEPS = (4, 32), 2
# Temperatures of Sinkhorn's scaling, and rates of the numbers that permutations are made of.
WARM, COLD = 0.2, 0.05
RATES = {"straight": 0.01, "sinkhorn": 0.05, "implicit": 0.05}


@dataclass(frozen=True)
class Kind:
    """A kind of models.

    Attributes:
        config: that they are trained by.
        small: sizes of tiny ones.
        title: of its table.
    """

    config: str
    small: Mapping[str, int]
    title: str


KINDS = {
    "gpt2": Kind(
        "gpt2_shakespeare_small.yaml", {"n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}, "Tied GPT-2s"
    ),
    "deberta": Kind(
        "deberta_shakespeare_small.yaml",
        {
            "max_position_embeddings": 16, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
            "num_attention_heads": 2,
        },
        "DeBERTas, whose norms come after the sums",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One way to come to an alignment.

    Attributes:
        how: its name in the benchmark.
        words: on the page.
        steps: of descent; of relaxed permutations first, and as many again with the permutations found.
        batch: examples of a step.
        rate: of the descent, where it is not the default.
        optimizer: of `learned`.
        start: of the matching by weights before `learned`.
        starts: that `learned` tries beside its own.
        draws: of inputs that such a start looks at.
        is_tested: whether the test pairs are measured too.
        kinds: of models that it is measured on.
        concentration: of the points of `learned`, where it is not the default.
        stride: tokens between the starts of the blocks of all of the training text, instead of the first of those that
            lie side by side.
        probes: a kind of synthetic texts in place of the training text.
        length: tokens of those.
    """

    how: str
    words: str
    steps: int = STEPS
    batch: int = BATCH
    rate: float | None = None
    is_tested: bool = True
    optimizer: str = "adamw"
    start: str = "annealed"
    starts: tuple[str, ...] = ()
    draws: int = 1
    kinds: tuple[str, ...] = ("gpt2",)
    concentration: float | None = None
    stride: int | None = None
    probes: str | None = None
    length: int = 128


BOTH = tuple(KINDS)
ROWS = {
    "weights": Row("annealed", "`weights`, nothing learned", 0, kinds=BOTH),
    "plain": Row("annealed", "no assignment after the start"),
    "swaps": Row("swaps", "swaps by exact losses before the descent"),
    "learned 32": Row("learned", "`learned` by AdamW, 300 steps of 32 blocks", 300, 32, kinds=BOTH),
    "learned": Row("learned", "`learned` by AdamW, 300 steps of 128 blocks", 300, 128),
    "learned 2400": Row("learned", "`learned` by AdamW, 2,400 steps of 8 blocks at a rate of 0.08", 2400, BATCH, 0.08),
    "muon": Row("learned", "`learned`, 300 steps of 32 blocks", 300, 32, optimizer="muon"),
    "muon 2400": Row("learned", "the same, 2,400 steps of 8 blocks", 2400, BATCH, optimizer="muon"),
    "muon starts": Row(
        "learned", "the same from the best of three starts (`--start annealed --starts known,activations`)", 2400,
        optimizer="muon", starts=("known", "activations"),
    ),
    "short": Row("learned", "`learned`, 600 steps of 16 blocks", 600, 16, optimizer="muon", kinds=BOTH),
    "told": Row(
        "learned", "the same from activations (`--start activations`)", 600, 16,
        optimizer="muon", start="activations", kinds=BOTH,
    ),
    "long": Row(
        "learned", "from activations, 2,400 steps of 8 blocks", 2400, BATCH,
        optimizer="muon", start="activations", kinds=BOTH,
    ),
    "longer": Row(
        "learned", "from activations, 4,800 steps of 4 blocks", 4800, 4,
        is_tested=False, optimizer="muon", start="activations", kinds=BOTH,
    ),
    "default": Row(
        "learned", "**`learned` as it is**: 600 steps of 16 blocks from activations and gradients", 600, 16,
        optimizer="muon", start="auto", kinds=BOTH,
    ),
    "gradients": Row(
        "learned", "the same, 2,400 steps of 8 blocks", 2400, BATCH, optimizer="muon", start="auto", kinds=BOTH
    ),
    "twice": Row(
        "learned", "the same, 4,800 steps of 8 blocks", 4800, BATCH, optimizer="muon", start="auto", kinds=BOTH
    ),
    "near": Row(
        "learned", "`learned` as it is, its points nearer to half way (`--concentration 20`)", 600, 16,
        is_tested=False, optimizer="muon", start="auto", concentration=20, kinds=BOTH,
    ),
    "most": Row(
        "learned", "the same, 4,800 steps of 16 blocks", 4800, 16,
        optimizer="muon", start="auto", concentration=20, kinds=BOTH,
    ),
    "whole": Row(
        "learned", f"`learned` as it is, from all of the training text (`--data.stride {STRIDE}`)", 600, 16,
        optimizer="muon", start="auto", stride=STRIDE,
    ),
    "whole near": Row(
        "learned", "the same, its points nearer to half way (`--concentration 20`)", 600, 16,
        is_tested=False, optimizer="muon", start="auto", concentration=20, stride=STRIDE,
    ),
    "whole most": Row(
        "learned", "the same, 4,800 steps of 16 blocks", 4800, 16,
        optimizer="muon", start="auto", concentration=20, stride=STRIDE,
    ),
    "whole again": Row(
        "learned", "the same again, on the end models of the next row", 4800, 16,
        optimizer="muon", start="auto", concentration=20, stride=STRIDE,
    ),
    "whole draws": Row(
        "learned", "the same from the best of eight starts (`--draws 8`)", 4800, 16,
        optimizer="muon", start="auto", draws=8, concentration=20, stride=STRIDE,
    ),
    "again": Row(
        "learned", "`learned` as it is, again, on the end models of the next rows", 600, 16,
        optimizer="muon", start="auto", kinds=BOTH,
    ),
    "written": Row(
        "learned", "**without data**: from texts of 128 tokens that the models write (`--probes generated`)", 600, 16,
        optimizer="muon", start="auto", kinds=BOTH, probes="generated",
    ),
    "written short": Row(
        "learned", "the same, texts of 32 tokens (`--length 32`)", 600, 16,
        is_tested=False, optimizer="muon", start="auto", kinds=BOTH, probes="generated", length=32,
    ),
    "tokens": Row(
        "learned", "without data: from 128 random tokens (`--probes tokens --length 128`)", 600, 16,
        is_tested=False, optimizer="muon", start="auto", kinds=BOTH, probes="tokens",
    ),
    "straight": Row("straight", "straight-through for the stream, then as many steps without"),
    "sinkhorn": Row("sinkhorn", "Sinkhorn with annealing for the stream, then as many steps without"),
    "implicit": Row("implicit", "the same, differentiated implicitly", is_tested=False),
    "activations": Row("activations", "the start by activations (`--start activations`)"),
    "known": Row("known", "the start from what is known (`--start known`)", is_tested=False),
    "random": Row("random", "the stream in a random order, the rest by weights", is_tested=False),
    "fast": Row("annealed", "no assignment after the start, a rate of 0.08", rate=0.08, is_tested=False),
    "wide": Row("annealed", "no assignment after the start, 300 steps of 128 blocks", 300, 128, is_tested=False),
    "after": Row("after", "swaps by exact losses after the descent", is_tested=False),
}  # fmt: skip
# Rows that were measured on models that another processor trained, of the same seeds.
OLDER = {
    "plain", "swaps", "learned", "straight", "sinkhorn", "implicit", "activations", "known", "random", "fast", "wide",
    "after", "whole again", "whole draws", "again", "written", "written short", "tokens",
}  # fmt: skip
MARK = " †"


def cell(kind: str, pair: tuple[int, int], row: str) -> str:
    """The name of a cell."""
    return f"{kind} {pair[0]}-{pair[1]} {row}"


def wanted(kind: str) -> list[tuple[tuple[int, int], str]]:
    """Pairs and rows of all cells of a kind, in the order to measure in."""
    rows = {name: row for name, row in ROWS.items() if kind in row.kinds}
    return [(pair, name) for name, row in rows.items() for pair in (PAIRS if row.is_tested else TUNED)]


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
half of them each, or random tokens. Seconds are of processor time, the end models' answers and the writing included, a
mean over the pairs that are measured, on busy machines.{MARK}: on other end models of the same seeds, which another
processor trained. Rows from activations alone were measured when `learned` took these by itself, from 1,024 rows of
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
