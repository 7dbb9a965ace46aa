"""The table, the sentences and the card of `fusionlab shrink`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from fusionlab import printing
from fusionlab.checkpoints.card import parent, shrunk_card
from fusionlab.growing import Shrinkage, size_range


def card(found: Shrinkage[Any], names: Sequence[str], location: Path, library: str, steps: int | None) -> str:
    """The card of a shrunk model.

    Args:
        found: what was done.
        names: of the large model, and of what gave the size.
        location: of the large model.
        library: ``transformers`` or ``timm``.
        steps: of polish; None for none.
    """
    made = {"logits differ by": f"{found.differs:.1e} of the largest, before any polish"}
    made |= {} if steps is None else {"polish": f"{steps} steps"}
    return shrunk_card(parent(names[0], location), names[1], made, library)


def tell(found: Shrinkage[Any], name: str, output: Path, notes: Sequence[str]) -> None:
    """Print what was kept, and how far the function moved, for people or for machines.

    Args:
        found: what was done.
        name: of the large model.
        output: that was written.
        notes: sentences on how.
    """
    table = Table("", name, "shrunk", title=f"{name} in a smaller architecture", title_justify="left")
    for role, (many, few) in found.sizes.items():
        table.add_row(role, size_range(many), size_range(few))
    for stack in found.placements:
        table.add_row(f"layers of {stack.small}", str(stack.length), str(len(stack.positions)))
    table.add_row("parameters", *(f"{count:,}" for count in found.parameters))
    printing.publish(
        {
            "model": name,
            "parameters": dict(zip(("before", "after"), found.parameters, strict=True)),
            "sizes": {role: {"before": list(many), "after": list(few)} for role, (many, few) in found.sizes.items()},
            "layers": {one.large: {"length": one.length, "kept": list(one.positions)} for one in found.placements},
            "logits_differ_by": {"float64": found.differs},
            "notes": list(notes),
            "output": str(output),
        }
    )
    console = printing.results()
    console.print(table)
    for stack in found.placements:
        console.print(
            f"Layers {', '.join(map(str, stack.positions))} of {stack.large} were kept.",
            highlight=False,
            soft_wrap=True,
        )
    console.print(
        f"Logits on random inputs differ by {found.differs:.1e} of the largest in float64, before any polish.",
        style="dim",
    )
    for note in notes:
        console.print(note, highlight=False)
    console.print(f"Written to {output}", highlight=False, soft_wrap=True)
