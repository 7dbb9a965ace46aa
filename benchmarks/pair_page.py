"""Parts of pages about pairs, written from what was measured by a plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from pair_plan import CHOSEN, EQUAL_TIME, Cell, Job, PairPlan, Seeds
from ways import Way


def of_pairs(plan: PairPlan, found: Cell, way: Way, steps: int | None = None) -> dict[Seeds, list[Cell]]:
    """By test pair the cells of a way with the chosen settings, one for each seed of learning that is measured.

    Args:
        plan: of the page.
        found: all cells.
        way: to one model.
        steps: of a distillation at equal time; as many as learned matching takes if None.
    """
    seeds = plan.seeds if way.learns else (None,)
    given = found[CHOSEN][way.key]
    rows = {pair: [Job("test", pair, way, given, seed, steps).name for seed in seeds] for pair in plan.test}
    known = {pair: [found[name] for name in names if name in found] for pair, names in rows.items()}
    return {pair: cells for pair, cells in known.items() if cells}


def seconds(cells: dict[Seeds, list[Cell]]) -> float:
    """The mean over pairs and seeds."""
    return fmean(cell["seconds"] for several in cells.values() for cell in several)


def at_equal_time(plan: PairPlan, found: Cell) -> list[tuple[Way, int, dict[Seeds, list[Any]]]]:
    """Ways with their steps and cells: learned matching and what distils as long, where every pair is measured.

    Args:
        plan: of the page.
        found: all cells.
    """
    rows = []
    for way in plan.ways:
        if way.learns:
            steps = found[EQUAL_TIME].get(way.key)
            cells = of_pairs(plan, found, way, steps)
            if len(cells) == len(plan.test):
                rows.append((way, steps or plan.steps, cells))
    return rows if any(way in plan.rivals for way, *_ in rows) else []


def choices(plan: PairPlan, found: Cell, score: Callable[[Sequence[Cell]], str]) -> str:
    """What was tried on the tuning pairs, with what was chosen in bold; empty where nothing is measured.

    Args:
        plan: of the page.
        found: all cells.
        score: what stands for the cells of some settings.
    """
    lines = []
    for way in plan.ways:
        tried = []
        for given in way.grid:
            cells = plan.tried(found, way, given)
            if len(cells) == len(plan.tuning):
                words = ", ".join(f"`{name}` {value}" for name, value in given.items()) or "the defaults"
                mark = "**" if given == found.get(CHOSEN, {}).get(way.key) else ""
                tried.append(f"{mark}{words}: {score(cells)}{mark}")
        if tried:
            lines.append(f"| {way.seen} | {way.name} | {'; '.join(tried)} |")
    return "\n".join(["| sees | way | tried |", "|---|---|---|", *lines]) if lines else ""


def missing(plan: PairPlan, found: Cell) -> str:
    """What is left to measure, or nothing."""
    left = plan.missing(found)
    if left is None:
        return "Settings are not chosen yet, and no test pair is measured.\n"
    return f"Not measured so far: {left} cells of the test pairs, which are left out.\n" if left else ""
