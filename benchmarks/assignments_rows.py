"""The rows of the benchmark of assignments that follow the loss: ways to an alignment, and models to try them on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fusionlab.learning.supplement import SYNTHETIC

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
        blocks: of the training text, where they are fewer.
        synthetic: texts that join few blocks, where it is not the default.
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
    blocks: int | None = None
    synthetic: int = SYNTHETIC


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
    "few": Row(
        "learned", "`learned` as it is, from 16 blocks alone (`--synthetic 0`)", 600, 16,
        optimizer="muon", start="auto", kinds=BOTH, blocks=16, synthetic=0,
    ),
    "few joined": Row(
        "learned", "from 16 blocks, and texts that the models write beside them", 600, 16,
        optimizer="muon", start="auto", kinds=BOTH, blocks=16,
    ),
    "some": Row(
        "learned", "from 256 blocks alone (`--synthetic 0`)", 600, 16,
        optimizer="muon", start="auto", blocks=256, synthetic=0,
    ),
    "some joined": Row(
        "learned", "from 256 blocks, and texts that the models write beside them", 600, 16,
        optimizer="muon", start="auto", blocks=256,
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
    "few", "few joined", "some", "some joined",
}  # fmt: skip
MARK = " †"


def cell(kind: str, pair: tuple[int, int], row: str) -> str:
    """The name of a cell."""
    return f"{kind} {pair[0]}-{pair[1]} {row}"


def wanted(kind: str) -> list[tuple[tuple[int, int], str]]:
    """Pairs and rows of all cells of a kind, in the order to measure in."""
    rows = {name: row for name, row in ROWS.items() if kind in row.kinds}
    return [(pair, name) for name, row in rows.items() for pair in (PAIRS if row.is_tested else TUNED)]
