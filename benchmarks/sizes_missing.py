"""What of the tables of different sizes is not measured yet."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sizes_measures import STEPS, cell_name
from sizes_tasks import LEARNED, task_cell
from sizes_trained_page import trained_missing

if TYPE_CHECKING:
    from different_sizes_page import Shown


def missing(found: dict[str, Any], trained: dict[str, Any], shown: Shown) -> Iterator[str]:
    """The cells that were to be measured and are not there, in words."""
    same_time = equal_time(found)
    wanted = {f"`learned`, {STEPS} steps": "learned"}
    for end in ("large", "small"):
        wanted[f"distillation into the {end} one, {same_time} steps"] = f"{end} {same_time}"
    lines = []
    places = {*shown.others, shown.chosen}
    tuning = [cell_name("tuning", pair, shown.deep, f"weights {one}") for pair in shown.tuning for one in places]
    if (measured := sum(name in found for name in tuning)) < len(tuning):
        lines.append(f"- `weights` with layers in all places, on tuning pairs: {measured} of {len(tuning)} runs.")
    for size in shown.sizes:
        measured = sum(cell_name("test", pair, size, "weights") in found for pair in shown.test)
        if measured < len(shown.test):
            lines.append(f"- `weights` with {size[1]} layers: {measured} of {len(shown.test)} pairs.")
    for size, (name, what) in itertools.product(shown.sizes, wanted.items()):
        every = list(itertools.product(shown.test, shown.seeds))
        there = [cell_name("test", pair, size, f"{what} {seed}") in found for pair, seed in every]
        if not all(there):
            lines.append(f"- {name}, with {size[1]} layers: {sum(there)} of {len(every)} runs.")
        tasks = sum(task_cell(pair, size, LEARNED, polished=True) in found for pair in shown.test)
        if what == "learned" and tasks < len(shown.test):
            lines.append(f"- halves of the digits, with {size[1]} layers: {tasks} of {len(shown.test)} pairs.")
    lines += trained_missing(trained)
    if lines:
        yield "## Not measured yet\n\n`make rows` goes on with what is missing.\n\n" + "\n".join(lines) + "\n"


def equal_time(found: dict[str, Any]) -> int | str:
    """Steps of distillation that take as long as learned matching; a word where that is not measured yet."""
    steps: int | str = found.get("equal time", {}).get("steps", "more")
    return steps
