"""The page about small BERTs that were pretrained from other seeds, written from what was measured."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from encoders_cells import SETS
from encoders_ways import AT_ONCE, PLAN
from intervals import reached, seeds_of
from pair_page import at_equal_time, choices, missing, of_pairs, seconds
from pair_plan import cell_name

# How many of the pairs a way should bring above their ensembles.
AIM = 4


def page(found: dict[str, Any]) -> str:
    """The whole page.

    Args:
        found: all cells.
    """
    parts = [_introduction()]
    if PLAN.missing(found) is not None:
        parts += [_table(found), _pairs(found), _equal_time(found)]
    return "\n".join(filter(None, [*parts, _choices(found), missing(PLAN, found)]))


def _introduction() -> str:
    tuning = " and ".join(f"({one}, {other})" for one, other in PLAN.tuning)
    test = ", ".join(f"({one}, {other})" for one, other in PLAN.test)
    return f"""# Encoders of different initialisation

    python benchmarks/encoders.py

That command writes this page from [`encoders.json`](encoders.json); no number of it is typed by hand. Small BERTs
(4 layers, 256 wide) are pretrained from scratch on the texts of GoEmotions, each from a seed of its own
(`bert_small_mlm.yaml`). Of a pair one is fine-tuned on 2,000 texts of ISEAR, the other on 2,000 of XED
(`bert_small_pairs.yaml`), and one model is made of both, in BERT's own architecture, whose norms come after the sums,
so that the residual stream may be permuted and not rotated. What stands in the tables is macro F1 in percent, a mean
over both sets; what looks at texts sees those 4,000 without labels, and each end model teaches on its own set alone.

Settings are chosen on validation texts of the pairs of seeds {tuning}, by which the epochs of the
fine-tunes were chosen too; the tables are of test texts and of the pairs {test},
in which each encoder is the first of one pair and the second of another. Behind ± is half the width of a 95 % interval
over pairs (Student's t), as if those had no encoder in common; a pair's value is the mean over its seeds of learning.
Seconds are of one processor, on machines that other programs used.
"""


def _ensembles(found: dict[str, Any]) -> dict[tuple[int, int], float]:
    names = {pair: cell_name("test", pair, "ends") for pair in PLAN.test}
    return {pair: fmean(found[name]["ensemble"]) for pair, name in names.items() if name in found}


def _means(cells: dict[tuple[int, int], list[Any]]) -> dict[tuple[int, int], float]:
    """By pair the mean score over both sets and over seeds."""
    return {pair: fmean(fmean(cell["scores"]) for cell in several) for pair, several in cells.items()}


def _above(found: dict[str, Any], means: dict[tuple[int, int], float]) -> str:
    """How many pairs are above their ensembles, of how many."""
    ensembles = _ensembles(found)
    return f"{sum(mean > ensembles[pair] for pair, mean in means.items())} of {len(means)}"


def _table(found: dict[str, Any]) -> str:
    ends = [found[name] for pair in PLAN.test if (name := cell_name("test", pair, "ends")) in found]
    references: dict[str, list[float]] = {
        "end models, each on its own set": [fmean((cell["ends"][0][0], cell["ends"][1][1])) for cell in ends],
        "better end model, on both sets": [max(map(fmean, cell["ends"])) for cell in ends],
        "ensemble": list(_ensembles(found).values()),
    }
    lines = [
        f"| | {name} | | {reached(values)} | {100 * min(values):.1f} | | |"
        for name, values in references.items()
        if values
    ]
    for way in PLAN.ways:
        cells = of_pairs(PLAN, found, way)
        means = _means(cells)
        if means:
            worst = 100 * min(means.values())
            seeds = seeds_of(cells.values()) if way.learns else ""
            told = f"{reached(list(means.values()))} | {worst:.1f} | {_above(found, means)} | {seconds(cells):.0f}"
            lines.append(f"| {way.seen} | {way.name} | {seeds} | {told} |")
    steps = PLAN.steps
    return f"""## {len(PLAN.test)} pairs

`learned` and distillations take {steps} steps of {AT_ONCE} texts. The aim is a model above the ensemble of its pair, in
at least {AIM} of {len(PLAN.test)} pairs.

| sees | way | seeds | macro F1 (%) | worst pair | above the ensemble | seconds |
|---|---|---:|---:|---:|---:|---:|
{chr(10).join(lines)}
"""


def _pairs(found: dict[str, Any]) -> str:
    rows: dict[str, dict[tuple[int, int], list[float]]] = {}
    for pair in PLAN.test:
        if (name := cell_name("test", pair, "ends")) in found:
            cell = found[name]
            rows.setdefault("end models", {})[pair] = [cell["ends"][0][0], cell["ends"][1][1]]
            rows.setdefault("ensemble", {})[pair] = cell["ensemble"]
    for way in PLAN.ways:
        for pair, cells in of_pairs(PLAN, found, way).items():
            both = [fmean(cell["scores"][place] for cell in cells) for place in range(len(SETS))]
            rows.setdefault(f"{way.name}, sees {way.seen}", {})[pair] = both
    head = " | ".join(f"{one}, {other}" for one, other in PLAN.test)
    lines = [
        f"| {name} | "
        + " | ".join(", ".join(f"{100 * score:.1f}" for score in of_pair.get(pair, ())) for pair in PLAN.test)
        + " |"
        for name, of_pair in rows.items()
    ]
    return f"""## Pair by pair

On ISEAR and on XED.

| | {head} |
|---|{"---:|" * len(PLAN.test)}
{chr(10).join(lines)}
"""


def _equal_time(found: dict[str, Any]) -> str:
    lines = []
    for way, steps, cells in at_equal_time(PLAN, found):
        means = _means(cells)
        told = f"{reached(list(means.values()))} | {_above(found, means)} | {seconds(cells):.0f}"
        lines.append(f"| {way.name} | {steps} | {seeds_of(cells.values())} | {told} |")
    if not lines:
        return ""
    return f"""## At equal time

Distillations of as many steps as take a processor as long as `learned` does, on the tuning pairs.

| way | steps | seeds | macro F1 (%) | above the ensemble | seconds |
|---|---:|---:|---:|---:|---:|
{chr(10).join(lines)}
"""


def _choices(found: dict[str, Any]) -> str:
    table = choices(PLAN, found, lambda cells: f"{100 * fmean(map(PLAN.score, cells)):.1f}")
    if not table:
        return ""
    return f"""## What was chosen

Scores on validation texts of the tuning pairs; the chosen setting, in bold, is the best of them. One seed of learning.

{table}
"""
