"""The page about merge methods on digit models of other seeds, written from what was measured."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from digits_pairs_cells import HELD_OUT, STEPS
from intervals import reached
from ways import MEAN, Given, transport

ALPHAS: tuple[Given, ...] = ({}, {"alpha": 0.7}, {"alpha": 0.99})
# Hyperparameters that are tried of every method, the defaults first.
METHODS: dict[str, tuple[Given, ...]] = {
    MEAN: ({},),
    "slerp": ({},),
    "karcher": ({},),
    "fisher": ({}, {"normalize": "model"}),
    "regmean": ALPHAS,
    "regmean_pp": ALPHAS,
    "ot": transport(0.03, 0.12),
    "circuit": ({}, {"metric": "gram"}),
}
# Words of each matching, and of the columns.
MATCHINGS = {"none": "unmatched", "paper": "paper", "weights": "weights", "learned": "learned"}


def cell_name(split: str, pair: int, width: int, matching: str, method: str, given: Given) -> str:
    """A cell's name in the file."""
    return f"{split} {pair} {width} {matching} {method} {json.dumps(given, sort_keys=True)}"


def scores(found: dict[str, Any], pairs: Sequence[int], width: int, matching: str, method: str) -> list[float]:
    """Accuracies of the test pairs that are measured, with the chosen hyperparameters."""
    given = found["chosen"][matching][method]
    names = [cell_name("test", pair, width, matching, method, given) for pair in pairs]
    return [found[name]["accuracy"] for name in names if name in found]


def ends(found: dict[str, Any], pairs: Sequence[int], width: int) -> tuple[list[float], list[float]]:
    """The mean of both end models, and their ensemble, of the test pairs that are measured."""
    names = [f"test {pair} {width} ends" for pair in pairs]
    cells = [found[name] for name in names if name in found]
    return [fmean(cell["ends"]) for cell in cells], [cell["ensemble"] for cell in cells]


def page(
    found: dict[str, Any], tuning: Sequence[int], test: Sequence[int], widths: Sequence[int], missing: int = 0
) -> str:
    """The whole page.

    Args:
        found: all cells.
        tuning: first seeds of the tuning pairs.
        test: of the test pairs.
        widths: of the models.
        missing: how many cells are not measured yet.
    """
    parts = [_introduction(found, tuning, test), *(_table(found, test, width) for width in widths)]
    if missing:
        parts.append(f"Not measured so far are {missing} cells.\n")
    else:
        parts += [_says(found, test, widths)]
    return "\n".join([*parts, _choices(found, tuning, widths[0])])


def _introduction(found: dict[str, Any], tuning: Sequence[int], test: Sequence[int]) -> str:
    settings = "; ".join(f"`{name}`: {_words(given)}" for name, given in found["matchings"].items() if given)
    return f"""# Merge methods, unmatched and matched

    python benchmarks/merge_methods.py

That command writes this page from [`merging.json`](merging.json); no number of it is typed by hand. Two vision
transformers of the demo's config learn scikit-learn's digits from other seeds, and are merged as they are, or after one
of three ways to match them, by every method that needs no base model. What stands in the tables is the accuracy of the
merge in percent, on 397 test images that nothing else sees (one image is 0.25 points).

Models, images and matching are those of [Digits](digits.md), with the settings that were chosen there for the plain
mean ({settings}); `learned` takes {STEPS} steps.
Hyperparameters of a method are the best on {len(tuning)} tuning pairs of other models, after each matching by itself,
on {HELD_OUT} images that those were not trained on. Statistics and `learned` see 1,400 training images without labels;
`fisher` draws labels from the models. Behind ± is half the width of a 95 % interval over {len(test)} test pairs
(Student's t), in brackets the worst pair. Seconds are of one merge of unmatched models on one thread, its statistics
included. `soup` is left out: where averaging hurts, it keeps one end model and merges nothing.

![Accuracy of every method, unmatched and matched](merging.png)
"""


def _words(given: Given) -> str:
    return ", ".join(f"`{name}` {value}" for name, value in given.items()) or "the defaults"


def _told(values: Sequence[float]) -> str:
    return f"{reached(values)} ({100 * min(values):.1f})" if values else ""


def _table(found: dict[str, Any], test: Sequence[int], width: int) -> str:
    single, together = ends(found, test, width)
    if not single:
        return ""
    lines = []
    for method in METHODS:
        told = [_told(scores(found, test, width, matching, method)) for matching in MATCHINGS]
        given = found["chosen"]["none"][method]
        names = [cell_name("test", pair, width, "none", method, given) for pair in test]
        seconds = [found[name]["seconds"] for name in names if name in found]
        lines.append(f"| `{method}` | {' | '.join(told)} | {f'{fmean(seconds):.2f}' if seconds else ''} |")
    return f"""## {width} wide

The end models reach {reached(single)} on average, their ensemble {reached(together)}.

| method | {" | ".join(MATCHINGS.values())} | seconds |
|---|{"---:|" * (len(MATCHINGS) + 1)}
{chr(10).join(lines)}
"""


def _says(found: dict[str, Any], test: Sequence[int], widths: Sequence[int]) -> str:
    return "## What it says\n\n" + "\n".join(_verdicts(found, test, widths)) + "\n"


def _verdicts(found: dict[str, Any], test: Sequence[int], widths: Sequence[int]) -> Iterator[str]:
    for width in widths:
        mean = {
            (matching, method): 100 * fmean(scores(found, test, width, matching, method))
            for matching in MATCHINGS
            for method in METHODS
        }
        level, parts = 100 * fmean(ends(found, test, width)[0]), []
        for matching, words in MATCHINGS.items():
            best, method = max((mean[matching, method], method) for method in METHODS)
            parts.append(f"`{method}` {'after `' + words + '`' if matching != 'none' else words} ({best:.1f})")
        first, *others = (f"{mean[matching, MEAN]:.1f}" for matching in MATCHINGS)
        yield (
            f"- **{width} wide**, where the end models have {level:.1f}: the best methods are {', '.join(parts)}; "
            f"the plain mean goes from {first} to {', '.join(others)}."
        )


def _choices(found: dict[str, Any], tuning: Sequence[int], width: int) -> str:
    lines = []
    for method, grid in METHODS.items():
        for matching, words in MATCHINGS.items():
            if len(grid) == 1:
                continue
            tried = []
            for given in grid:
                names = [cell_name("tuning", pair, width, matching, method, given) for pair in tuning]
                mark = "**" if given == found["chosen"][matching][method] else ""
                tried.append(
                    f"{mark}{_words(given)}: {100 * fmean(found[name]['accuracy'] for name in names):.1f}{mark}"
                )
            lines.append(f"| `{method}` | {words} | {'; '.join(tried)} |")
    pairs = ", ".join(f"{pair} and {pair + 1}" for pair in tuning)
    return f"""## What was chosen

Accuracies on the {HELD_OUT} images of the {len(tuning)} tuning pairs (seeds {pairs}), {width} wide; the chosen
hyperparameters, in bold, are the best of them, those of the lower loss among equals.

| method | matching | tried |
|---|---|---|
{chr(10).join(lines)}
"""
