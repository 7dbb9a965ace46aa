"""The page about GPT-2s that read by GPT-2's own tokens, written from what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from intervals import nats
from ways import DISTILLED, MEAN, Way, what

# Seeds of source and anchor.
PAIRS = ((0, 1), (2, 3), (4, 5))
EMBEDDINGS = ("tied", "untied")
# Of whatever learns: steps, blocks of text in each, and how it computes.
STEPS, AT_ONCE, PRECISION = 300, 16, "bf16-mixed"
WAYS = (
    Way("plain mean", "none", "none"),
    Way("the paper's matching", "none", "paper"),
    Way("permutations (Git Re-Basin)", "none", "git-rebasin"),
    Way("optimal transport (OT-WTS)", "none", "none", "ot"),
    Way("`weights`", "none", "weights"),
    Way("RegMean", "texts", "none", "regmean"),
    Way("`weights`, merged by RegMean", "texts", "weights", "regmean"),
    Way("`activations`", "texts", "activations"),
    Way("**`learned`**", "texts", "learned"),
    Way("distilled from the plain mean", "texts", "none", DISTILLED),
    Way("distilled from the mean after `weights`", "texts", "weights", DISTILLED),
)
# Barriers of Theus et al., nats: of the plain mean, by weights, learned.
THEIRS = (2.02, 0.34, 0.02)


def ways_of(embeddings: str) -> list[Way]:
    """The ways that are measured with some embeddings; what is distilled stays as it was trained, tied."""
    return [way for way in WAYS if embeddings == "tied" or way.then != DISTILLED]


def ends_name(pair: Sequence[int]) -> str:
    """The name of the cell of a pair's end models."""
    return f"{pair[0]}-{pair[1]} ends"


def cell_name(pair: Sequence[int], embeddings: str, way: Way) -> str:
    """A cell's name in the file."""
    return f"{pair[0]}-{pair[1]} {embeddings} {what(way, {})}"


def page(found: Mapping[str, Any]) -> str:
    """The whole page.

    Args:
        found: all cells.
    """
    parts = [_introduction(found), *(_table(found, embeddings) for embeddings in EMBEDDINGS), _missing(found)]
    return "\n".join(filter(None, parts))


def _introduction(found: Mapping[str, Any]) -> str:
    ends = [found[name] for pair in PAIRS if (name := ends_name(pair)) in found]
    losses = [loss for cell in ends for loss in cell["losses"]]
    known = ""
    if losses:
        ensembles = ", ".join(f"{cell['ensemble'][0]:.3f}" for cell in ends)
        span = f"{min(losses):.3f} to {max(losses):.3f}"
        known = f"\n\nThe end models' losses on the test text are {span}, their ensembles' {ensembles}."
    plain, weights, learned = THEIRS
    return f"""# GPT-2 by its own tokens

    python benchmarks/shakespeare_tokens.py
    python benchmarks/gpt2_tokens.py

The second command writes this page from [`gpt2_tokens.json`](gpt2_tokens.json); no number of it is typed by hand.
Theus et al. merge GPT-2s of 6 layers, 256 wide, that read Shakespeare's plays by GPT-2's tokens, not byte by byte. So
do these (`gpt2_shakespeare_bpe.yaml`: 6 layers, 4 heads, 256 wide, texts of 256 tokens, 6 epochs), each from a seed of
its own. The first command makes GPT-2's tokenizer smaller: the 13,257 tokens that the text needs, out of 50,257, so
that every text is split as by the whole one (theirs keeps all, and matches by the rows of those that occur).{known}

Nothing was chosen on these pairs, nor on any other by these tokens: settings are the defaults, but that whatever
learns takes {STEPS} steps of {AT_ONCE} blocks in bf16, on the training text without labels. There is one seed of
learning. Barriers are in nats on all blocks of the test text, the highest at eleven points of the line between the
twins, as theirs; *lost* is the loss of the one model that is made above the mean of its end models, and below it where
negative. Behind ± is half the width of a 95 % interval over pairs (Student's t). Seconds are of one processor, on
machines that other programs used: steps of a distillation take about as long as those of `learned`, so that rows of
equal steps are of equal time too. Optimal transport by activations is not measured.

Embeddings are tied as the models were trained, or untied (`--untie`), which lets the stream rotate; what is distilled
stays tied. Theus et al. report barriers of {plain} for the plain mean, {weights} by weights, {learned} learned.
Their plain mean loses more than twice as much as this one, so their end models, which learned longer and at a lower
rate, are harder to bring together: rows compare with each other first.
"""


def _cells(found: Mapping[str, Any], embeddings: str, way: Way) -> dict[tuple[int, int], dict[str, float]]:
    """By pair what a way left: barrier, loss above the end models, seconds."""
    cells = {}
    for pair in PAIRS:
        name = cell_name(pair, embeddings, way)
        if name in found:
            lost = found[name]["loss"] - fmean(found[ends_name(pair)]["losses"])
            cells[pair] = {**found[name], "lost": lost}
    return cells


def _table(found: Mapping[str, Any], embeddings: str) -> str:
    lines = []
    for way in ways_of(embeddings):
        cells = _cells(found, embeddings, way)
        if not cells:
            continue
        measured = list(cells.values())
        of_pair = " | ".join(_of_pair(cells.get(pair)) for pair in PAIRS)
        barrier = nats([cell["barrier"] for cell in measured]) if way.then == MEAN else ""
        seconds = f"{fmean(cell['seconds'] for cell in measured):.0f}"
        lines.append(
            f"| {way.seen} | {way.name} | {of_pair} | {barrier} | {nats([c['lost'] for c in measured])} | {seconds} |"
        )
    if not lines:
        return ""
    head = " | ".join(f"{one}, {other}" for one, other in PAIRS)
    return f"""## Embeddings {embeddings}

By pair the barrier, where there is a line between two twins, and behind it what the mean lost; of what is no mean of
twins only the latter.

| sees | way | seeds {head} | barrier | lost | seconds |
|---|---|{"---:|" * len(PAIRS)}---:|---:|---:|
{chr(10).join(lines)}
"""


def _of_pair(cell: Mapping[str, float] | None) -> str:
    if cell is None:
        return ""
    return f"{cell['barrier']:.3f}, {cell['lost']:.3f}" if "barrier" in cell else f"{cell['lost']:.3f}"


def _missing(found: Mapping[str, Any]) -> str:
    every = [(embeddings, way) for embeddings in EMBEDDINGS for way in ways_of(embeddings)]
    missing = []
    for pair in PAIRS:
        lacking = [one for one in every if cell_name(pair, *one) not in found]
        told = [f"{way.name}, {embeddings}" for embeddings, way in lacking] if len(lacking) < len(every) else ["all"]
        missing += [f"of seeds {pair[0]}, {pair[1]} {'; '.join(told)}"] if lacking else []
    return f"Not measured so far: {', and '.join(missing)}.\n" if missing else ""
