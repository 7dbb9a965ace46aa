"""The table and the sentences that `fusionlab grow` shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from fusionlab import printing
from fusionlab.growing import Growth, size_range


def tell(growth: Growth[Any], name: str, output: Path, notes: Sequence[str]) -> None:
    """Print what was grown, by how much, and how exact it is, for people or for machines.

    Args:
        growth: what was done.
        name: of the small model.
        output: that was written.
        notes: sentences on how.
    """
    table = Table("", name, "grown", title=f"{name} in a larger architecture", title_justify="left")
    for role, (few, many) in growth.sizes.items():
        table.add_row(role, size_range(few), size_range(many))
    for stack in growth.placements:
        table.add_row(f"layers of {stack.small}", str(len(stack.positions)), str(stack.length))
    table.add_row("parameters", *(f"{count:,}" for count in growth.parameters))
    table.add_row("operations of a pass", *(f"{count:,}" for count in growth.operations))
    stacks = {stack.small: {"length": stack.length, "positions": list(stack.positions)} for stack in growth.placements}
    printing.publish(
        {
            "model": name,
            "parameters": dict(zip(("before", "after"), growth.parameters, strict=True)),
            "operations": dict(zip(("before", "after"), growth.operations, strict=True)),
            "sizes": {role: {"before": list(few), "after": list(many)} for role, (few, many) in growth.sizes.items()},
            "layers": stacks,
            "logits_differ_by": {"float64": growth.exact, "stored": growth.stored},
            "notes": [*growth.notes, *notes],
            "output": str(output),
        }
    )
    console = printing.results()
    console.print(table)
    for stack in growth.placements:
        console.print(f"Layers of {stack.small} stand at {', '.join(map(str, stack.positions))}.", highlight=False)
    console.print(
        f"Logits on random inputs differ by {growth.exact:.1e} of the largest in float64, and by {growth.stored:.1e} "
        f"as they are stored.",
        style="dim",
    )
    for note in (*growth.notes, *notes):
        console.print(note, highlight=False)
    console.print(f"Written to {output}", highlight=False, soft_wrap=True)
