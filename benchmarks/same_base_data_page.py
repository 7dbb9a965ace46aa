"""The page about merging fine-tunes of one base with data at hand, written from what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from intervals import half_width
from same_base_models import VALIDATION
from same_base_page import cell_name

LABELLED = "with labels"
# By method what it looks at.
LOOKS_AT = {
    "simple": "nothing",
    "tsv_m": "the base model",
    "regmean": "training images, no labels",
    "adamerging": "the base model; training images, no labels",
    "task_arithmetic, searched": f"the base model; {VALIDATION} validation images of each task, {LABELLED}",
}
AIM = 95


def part(found: dict[str, Any], counts: Sequence[int]) -> str:
    """The part of the page about fine-tunes of one base that is about data at hand.

    Args:
        found: all cells.
        counts: how many tasks are merged.
    """
    chosen = found["chosen"]
    measured = {count: [seed for seed in chosen["seeds"] if _is_complete(found, count, seed)] for count in counts}
    seeds = measured[max(counts)]
    images = [number for number in chosen["images"] if _is_polished(found, max(counts), number, seeds)]
    parts = [_introduction(seeds, len(chosen["seeds"]))]
    for count in counts:
        if measured[count] != seeds:
            continue
        own = fmean(score for seed in seeds for score in found[f"test {seed} ends"]["own"][:count])
        base = _shares(found, seeds, count, [found[f"test {seed} ends"]["base"] for seed in seeds])
        rows = [_row(found, seeds, count, method) for method in LOOKS_AT]
        if count == max(counts):
            rows += [_polished_row(found, seeds, count, number) for number in images]
        rows.sort(key=lambda row: -row[0])
        parts.append(
            f"### {count} tasks, data at hand\n\nThe fine-tunes reach {100 * own:.1f} % on average, which is 100 here. "
            f"The base model with the fine-tunes' heads: {_told(base).replace(' | ', ', worst task ')}.\n\n"
            "| method | looks at | kept, interval | worst task | seconds | settings |\n|---|---|---:|---:|---:|---|\n"
            + "\n".join(row for _, row in rows)
            + "\n"
        )
        if count == max(counts):
            reached = max(value for value, row in rows if LABELLED not in row)
            word = "reached" if reached >= AIM else "missed"
            alone = max(value for value, row in rows if LABELLED not in row and "polished" not in row)
            parts.append(
                f"The aim at {count} tasks, {AIM} % of the fine-tunes' own accuracy with unlabelled data, is {word}: "
                f"{reached:.1f}, and {alone:.1f} without a polish.\n"
            )
    return "\n".join([*parts, _curve(found, seeds, max(counts), images)])


def _is_complete(found: dict[str, Any], count: int, seed: int) -> bool:
    """True if all merges of a base model's fine-tunes were measured."""
    chosen = found["chosen"]
    return all(cell_name("test", seed, count, method, chosen[f"{count} {method}"]) in found for method in LOOKS_AT)


def _is_polished(found: dict[str, Any], count: int, images: int, seeds: Sequence[int]) -> bool:
    """True if a point of the curve was measured on all of some base models."""
    steps = found["chosen"]["steps"]
    return all(polish_name("test", seed, count, "tsv_m", images, steps) in found for seed in seeds)


def _introduction(seeds: Sequence[int], meant: int) -> str:
    few = "" if len(seeds) == meant else f" (of {meant} that are meant: the others are not measured yet)"
    models = f"the base models {', '.join(map(str, seeds))}{few}"
    return f"""## With data at hand

    python benchmarks/same_base_data.py

That command measures this part, in [`same_base_data.json`](same_base_data.json), and writes the page. Tasks, images and
the way of counting are those above, over {models}; the models were trained again for it on another
processor, which gives others by the same seeds. So `simple`, `tsv_m` and `regmean`, with what is chosen above, stand
here once more for comparison on the same models. What is chosen here is chosen on the validation images of the tuning
models, which were trained again too.

*Searched* means the search of `fusionlab fuse --search`: Optuna looks for the method's hyperparameters and the models'
weights by the accuracy on {VALIDATION} validation images of each task, with labels, which nothing was trained on and
nothing is tested on; nothing about the searches was chosen.
*Polished* means that the merge by `tsv_m` was polished with heads of its own (`--heads own --polish`): each fine-tune
teaches on n of its training images, without labels. Seconds are of one thread of a busy machine.
"""


def _row(found: dict[str, Any], seeds: Sequence[int], count: int, method: str) -> tuple[float, str]:
    """The mean of a method, and its row."""
    given = found["chosen"][f"{count} {method}"]
    cells = [found[cell_name("test", seed, count, method, given)] for seed in seeds]
    shares = _shares(found, seeds, count, [cell["scores"] for cell in cells])
    seconds = fmean(cell["seconds"] for cell in cells)
    words = ", ".join(f"`{name}` {value}" for name, value in given.items()) or "the defaults"
    return _mean(shares), f"| `{method}` | {LOOKS_AT[method]} | {_told(shares)} | {seconds:.1f} | {words} |"


def _polished_row(found: dict[str, Any], seeds: Sequence[int], count: int, images: int) -> tuple[float, str]:
    """The same of a polish."""
    cells = _curve_cells(found, seeds, count, images)
    shares = _shares(found, seeds, count, [cell["scores"] for cell in cells])
    looks = f"the base model; {images} training images of each task, no labels"
    seconds, words = fmean(cell["seconds"] for cell in cells), f"`polish.steps` {found['chosen']['steps']}"
    return _mean(shares), f"| `tsv_m`, polished | {looks} | {_told(shares)} | {seconds:.1f} | {words} |"


def _curve(found: dict[str, Any], seeds: Sequence[int], count: int, images: Sequence[int]) -> str:
    """What a polish brings back of what the merge lost."""
    start = _shares(found, seeds, count, [found[cell_name("test", s, count, "tsv_m", {})]["scores"] for s in seeds])
    lost = 100 - _mean(start)
    rows = [f"| 0 | {_told(start)} | |"]
    for number in images:
        shares = _shares(found, seeds, count, [cell["scores"] for cell in _curve_cells(found, seeds, count, number)])
        rows.append(f"| {number} | {_told(shares)} | {100 * (_mean(shares) - _mean(start)) / lost:.0f} % |")
    return (
        f"### What a polish brings back\n\nThe merge of {count} fine-tunes by `tsv_m`, polished on n training images "
        f"of each task without labels ({found['chosen']['steps']} steps, chosen on the tuning models):\n\n"
        "| n | kept, interval | worst task | of what was lost, back |\n|---:|---:|---:|---:|\n" + "\n".join(rows) + "\n"
    )


def _curve_cells(found: dict[str, Any], seeds: Sequence[int], count: int, images: int) -> list[dict[str, Any]]:
    steps = found["chosen"]["steps"]
    return [found[polish_name("test", seed, count, "tsv_m", images, steps)] for seed in seeds]


def _shares(
    found: dict[str, Any], seeds: Sequence[int], count: int, scores: Sequence[Sequence[float]]
) -> list[list[float]]:
    """For each base model the share of every task, in percent."""
    ends = [found[f"test {seed} ends"]["own"][:count] for seed in seeds]
    return [
        [100 * score / end for score, end in zip(row[:count], own, strict=True)]
        for row, own in zip(scores, ends, strict=True)
    ]


def _mean(shares: Sequence[Sequence[float]]) -> float:
    return fmean(map(fmean, shares))


def _told(shares: Sequence[Sequence[float]]) -> str:
    """The mean with half its interval over base models, of which one has none, and the worst task."""
    means = [fmean(row) for row in shares]
    half = f" ± {half_width(means):.1f}" if len(means) > 1 else ""
    return f"{fmean(means):.1f}{half} | {fmean(map(min, shares)):.1f}"


def polish_name(split: str, seed: int, count: int, method: str, images: int, steps: int) -> str:
    """The name of a cell of the curve of polish."""
    return f"{split} {seed} {count} {method}, polished on {images} images of each task, {steps} steps"
