"""The page about fine-tunes of one base, written from what was measured."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from intervals import half_width
from same_base_settings import Setting


def measured(found: dict[str, Any], methods: Sequence[str], setting: Setting) -> list[str]:
    """The methods of which nothing is missing on the test models.

    Args:
        found: all cells.
        methods: of the grids.
        setting: of which fine-tunes.
    """
    best: dict[str, dict[str, Any]] = found["chosen"]

    def is_there(count: int, method: str) -> bool:
        if (given := best.get(f"{count} {method}")) is None:
            return False
        return all(cell_name("test", seed, count, method, one) in found for seed in setting.test for one in ({}, given))

    return [method for method in methods if all(is_there(count, method) for count in setting.counts)]


def page(found: dict[str, Any], methods: Sequence[str], setting: Setting) -> str:
    """The whole page.

    Args:
        found: all cells.
        methods: in the order of the grids; those that are not measured are named.
        setting: of which fine-tunes.
    """
    best, seeds, words = found["chosen"], setting.test, setting.words
    methods, missing = (there := measured(found, methods, setting)), [name for name in methods if name not in there]
    parts = [
        f"# {words.title}\n\n    python benchmarks/same_base.py{words.option}\n\nThat command writes this page from "
        f"[`{setting.file}.json`]({setting.file}.json); no number is typed by hand. How this page follows\nthe "
        f"[protocol](protocol.md), and where it does not, is told there.\n",
        *(filled(text) for text in (words.done, words.counting(len(seeds), setting.tuning), words.besides)),
        *([filled(f"Not measured so far: {', '.join(f'`{method}`' for method in missing)}.")] if missing else []),
        f"![What every method keeps, by the number of tasks]({setting.file}.png)\n",
    ]
    for count in setting.counts:
        own = fmean(score for seed in seeds for score in found[f"test {seed} ends"]["own"][:count])
        base = _shares(found, [found[f"test {seed} ends"]["base"][:count] for seed in seeds], count, seeds)
        rows = []
        for method in methods:
            given = best[f"{count} {method}"]
            tuned, plain = _of(found, count, method, given, seeds), _of(found, count, method, {}, seeds)
            rows.append((tuned[0], f"| `{method}` | {_cells(*plain)} | {_cells(*tuned)} | {settings_words(given)} |"))
        rows.sort(key=lambda row: -row[0])
        parts.append(
            f"## {count} tasks\n\nThe fine-tunes reach {100 * own:.1f} % on average, which is 100 here. The base model "
            f"with the fine-tunes' heads: {base[0]:.1f}, worst task {base[1]:.1f}.\n\n"
            "| method | defaults, interval | worst task | seconds | chosen, interval | worst task | seconds | what was "
            "chosen |\n"
            "|---|---:|---:|---:|---:|---:|---:|---|\n" + "\n".join(row for _, row in rows) + "\n"
        )
    return "\n".join([*parts, _by_task(found, methods, setting)])


def filled(text: str) -> str:
    """A paragraph, its lines broken again."""
    return textwrap.fill(" ".join(text.split()), 118, break_on_hyphens=False) + "\n"


def _by_task(found: dict[str, Any], methods: Sequence[str], setting: Setting) -> str:
    best, seeds, count = found["chosen"], setting.test, max(setting.counts)
    rows = []
    own = [[found[f"test {seed} ends"][key][:count] for seed in seeds] for key in ("own", "base")]
    rows.append(
        f"| fine-tunes, {setting.words.score} | "
        + " | ".join(f"{100 * value:.1f}" for value in _columns(own[0]))
        + " |"
    )
    table: dict[str, list[list[float]]] = {
        "base model": [[b / o for o, b in zip(*pair, strict=True)] for pair in zip(*own, strict=True)]
    }
    for method in methods:
        values: list[list[float]] = []
        for seed in seeds:
            scores = found[cell_name("test", seed, count, method, best[f"{count} {method}"])]["scores"]
            values.append([s / o for s, o in zip(scores, found[f"test {seed} ends"]["own"], strict=False)])
        table[f"`{method}`"] = values
    ordered = sorted(table, key=lambda name: -fmean(_columns(table[name])))
    rows += [
        f"| {name} | " + " | ".join(f"{100 * value:.1f}" for value in _columns(table[name])) + " |" for name in ordered
    ]
    heads = " | ".join(setting.names[:count])
    return (
        f"## By task, {count} tasks, chosen hyperparameters\n\n| | {heads} |\n|---|{'---:|' * count}\n"
        + "\n".join(rows)
        + "\n"
    )


def _columns(rows: Sequence[Sequence[float]]) -> list[float]:
    return [fmean(column) for column in zip(*rows, strict=True)]


def _of(
    found: dict[str, Any], count: int, method: str, given: dict[str, Any], seeds: Sequence[int]
) -> tuple[float, float, float, float]:
    """The mean share in percent, half the width of its interval, the share of the worst task, and seconds."""
    cells = [found[cell_name("test", seed, count, method, given)] for seed in seeds]
    shares = shares_of(found, [cell["scores"] for cell in cells], count, seeds)
    means = [100 * fmean(row) for row in shares]
    return fmean(means), half_width(means), 100 * fmean(map(min, shares)), fmean(cell["seconds"] for cell in cells)


def shares_of(
    found: dict[str, Any], scores: Sequence[Sequence[float]], count: int, seeds: Sequence[int], split: str = "test"
) -> list[list[float]]:
    """For each seed the share of every task.

    Args:
        found: all cells.
        scores: of each seed and task.
        count: of tasks.
        seeds: of the models.
        split: that they were measured on.
    """
    ends = [found[f"{split} {seed} ends"]["own"][:count] for seed in seeds]
    return [[s / o for s, o in zip(row, end, strict=True)] for row, end in zip(scores, ends, strict=True)]


def _shares(
    found: dict[str, Any], scores: Sequence[Sequence[float]], count: int, seeds: Sequence[int]
) -> tuple[float, float]:
    shares = shares_of(found, scores, count, seeds)
    return 100 * fmean(map(fmean, shares)), 100 * fmean(map(min, shares))


def cell_name(split: str, seed: int, count: int, method: str, given: dict[str, Any]) -> str:
    """A cell's name in the file."""
    return f"{split} {seed} {count} {method} {json.dumps(given, sort_keys=True)}"


def _cells(mean: float, half: float, worst: float, seconds: float) -> str:
    return f"{mean:.1f} ± {half:.1f} | {worst:.1f} | {seconds:.2f}"


def settings_words(given: dict[str, Any]) -> str:
    """Hyperparameters, as tables have them."""
    return ", ".join(f"`{name}` {value}" for name, value in given.items()) or "the defaults"
