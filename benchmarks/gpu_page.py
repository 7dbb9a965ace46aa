"""The page about a GPU, written from what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Of the paper's Table 3, on an A100: what matching is held against.
PAPER_SECONDS = 1.59
COMMAND = "python benchmarks/on_gpu.py --accelerator gpu --cifar CIFAR10 --shakespeare tiny_shakespeare.parquet"


def page(found: dict[str, Any], known: Sequence[str]) -> str:
    """The whole page.

    Args:
        found: what was measured, by piece.
        known: the names of all pieces.
    """
    missing = [name for name in known if name not in found]
    parts = [_introduction(found)]
    groups = [
        ("Matching", "matching ", _paper),
        ("Decompositions", "decompositions", None),
        ("Assignments", "assignments", None),
        ("Steps", "steps ", _ratio),
        ("Barriers", "barrier ", None),
        ("Training", "training ", None),
    ]
    for title, start, more in groups:
        rows = {name: cell for name, cell in found.items() if name.startswith(start)}
        if rows:
            parts.append(f"## {title}\n\n{_table(rows)}")
            parts += [] if more is None else [more(rows)]
    if missing:
        listed = "".join(f"- {name}\n" for name in missing)
        parts.append(f"## Not run yet\n\nOf {len(known)} pieces {len(missing)} have not been run:\n\n{listed}".rstrip())
    return "\n\n".join(parts) + "\n"


def _introduction(found: dict[str, Any]) -> str:
    lines = [
        "# On a GPU",
        "This page is written by `benchmarks/on_gpu.py` from `on_gpu.json` beside it; no number is typed by hand.",
        f"    {COMMAND}",
        "Every piece takes less than nine minutes, and the command goes on with what is missing.",
    ]
    if "device" not in found:
        lines.append("**No piece has been run on a GPU yet: no machine of the project has had one.**")
    else:
        cell = found["device"]
        memory = f", {cell['GiB']:.0f} GiB" if "GiB" in cell else ""
        lines.append(f"Measured on: {cell['name']}{memory}, torch {cell['torch']}.")
    return "\n\n".join(lines)


def _table(rows: dict[str, dict[str, Any]]) -> str:
    """A row for each number; pieces have different ones."""
    lines = ["| piece | | |", "|---|---|---:|"]
    for name, cell in rows.items():
        for key, value in cell.items():
            if key != "took":
                lines.append(f"| {name} | {key} | {_number(value)} |")
    return "\n".join(lines)


def _number(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _paper(rows: dict[str, dict[str, Any]]) -> str:
    times = [cell["paper, device, seconds"] for cell in rows.values()]
    return (
        f"The paper's Table 3 has {PAPER_SECONDS} seconds on an A100 for matching DeBERTa. By `paper`, feed-forward "
        f"layers included, it took {min(times):.3g} to {max(times):.3g} seconds here; both models lay there before."
    )


def _ratio(rows: dict[str, dict[str, Any]]) -> str:
    ratios = [cell["learning, seconds a step"] / cell["distillation, seconds a step"] for cell in rows.values()]
    return f"A step of learning takes {min(ratios):.2f} to {max(ratios):.2f} times a step of distillation."
