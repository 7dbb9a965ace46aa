"""The page of measures that weights are matched in."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from measures_tried import TRIED

# For each kind: its heading, what is better half way and by how much a number of it is shown.
KINDS = {
    "digits": ("Digits, 64 wide: accuracy half way (%)", "score", 100, 1),
    "gpt2": ("Untied GPT-2s: barrier (nats)", "barrier", 1, 3),
}


def page(found: Mapping[str, Any]) -> str:
    """The page.

    Args:
        found: the cells.
    """
    text = """# Measures other than the distance

    python benchmarks/measures.py

That command writes this page from [`measures.json`](measures.json); no number is typed by hand. Matching by weights
minimises a distance between weights, and it is the distance that keeps it from better twins
([digits](digits.md#without-data-and-without-a-descent-10-pairs)). Here each matrix is put in another measure before the
models are matched: multiplied by a power of the moments of what it reads (power 1 of real inputs' moments makes the
distance that of what matrices write), or with a power of its singular values. Neither depends on the order of units
or on how streams are turned. What was found is applied to the models as they are, and the plain mean of the twins is
measured. Norms are folded, heads balanced. Synthetic inputs are what the models' own dimensions tell, of GPT-2s texts
that they write.

These are the tuning pairs of [digits](digits.md) and of [assignments](assignments.md), untied, on validation data:
nothing here is of test models. *Chosen by agreement* is, pair by pair, the row without real inputs whose mean answers
most like the end models' mean on synthetic inputs (Kullback-Leibler).
"""
    for kind, (head, key, factor, digits) in KINDS.items():
        cells = {name: found[f"{kind} {name}"] for name in TRIED if f"{kind} {name}" in found}
        if not cells:
            continue
        text += f"\n## {head}\n\n| measure | mean | each pair |\n|---|---:|---|\n"
        rows = [(TRIED[name].name, cell[key]) for name, cell in cells.items()]
        free = [cell for name, cell in cells.items() if not TRIED[name].is_real]
        # By pair, what each measure reaches beside how far its answers are from the end models'.
        beside = zip(*(zip(cell["apart"], cell[key], strict=True) for cell in free), strict=True)
        nearest = [min(pair)[1] for pair in beside]
        for name, values in [*rows, ("chosen by agreement", nearest)]:
            each = ", ".join(f"{factor * value:.{digits}f}" for value in values)
            text += f"| {name} | {factor * fmean(values):.{digits}f} | {each} |\n"
    return text
