"""``fusionlab inspect``: a model's spaces, its symmetry and what it does not cover."""

import json
import math
from collections.abc import Sequence
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from fusionlab import checkpoints
from fusionlab.commands import parsing
from fusionlab.commands.example import add_example, own_module
from fusionlab.symmetry import Blueprint, Space, blueprint

DESCRIPTION = (
    """Show the symmetry of a model: its spaces, what may act on them, and the parameters that none touches."""
)


def run(argv: Sequence[str]) -> None:
    """Run the command.

    Raises:
        InputError: a checkpoint that cannot be read.
        SymmetryError: an architecture that is not described.
    """
    parser = parsing.make_parser("inspect", DESCRIPTION, seed=False)
    parser.add_argument("ckpt", type=str, help="A checkpoint: folder, .ckpt file or hub id.")
    add_example(parser)
    parser.add_argument("--json", type=bool, nargs="?", const=True, default=False, help="Print JSON instead of tables.")
    arguments = parsing.parse(parser, argv)
    model = checkpoints.read(arguments.ckpt, own_module(arguments, argv)).model
    found = blueprint(model)
    sizes = {name: tensor.numel() for name, tensor in model.state_dict().items()}
    summary = summarise(found, sizes)
    if arguments.json:
        print(json.dumps(summary, indent=2))
        return
    console = Console()
    console.print(_spaces_table(arguments.ckpt, found))
    covered = 100 * (1 - summary["untouched_numbers"] / max(1, summary["numbers"]))
    console.print(
        f"Symmetry: {found.dimension:,} continuous dimensions and 10^{summary['log10_order']:,.0f} permutations, "
        f"in {summary['numbers']:,} parameters.\n"
        f"Coverage: {covered:.3f} % of the parameters are moved by some space. Untouched: "
        f"{', '.join(found.untouched()) or 'none'}.",
        highlight=False,
    )
    if found.after_folding is not None:
        freed = ", ".join(
            f"{space.name} {space.group}"
            for name, space in found.after_folding.spaces.items()
            if space.group != found.spaces[name].group
        )
        console.print(
            f"Folded (--gauge folded): {found.after_folding.dimension:,} continuous dimensions, with {freed}.",
            highlight=False,
        )
    for note in found.notes:
        console.print(f"Left out: {note}.", highlight=False)


def summarise(found: Blueprint, sizes: dict[str, int]) -> dict[str, Any]:
    """The symmetry of a model as plain data.

    Args:
        found: its blueprint.
        sizes: how many numbers each parameter has.
    """
    untouched = found.untouched()
    return {
        "architecture": found.architecture,
        "spaces": [
            {
                "name": space.name,
                "role": space.role,
                "layer": space.layer,
                "group": str(space.group),
                "copies": math.prod(space.copies),
                "dimension": space.dimension,
            }
            for space in found.spaces.values()
        ],
        "dimension": found.dimension,
        "dimension_folded": (found.after_folding or found).dimension,
        "log10_order": sum(_log10_order(space) for space in found.spaces.values()),
        "numbers": sum(sizes.values()),
        "untouched": list(untouched),
        "untouched_numbers": sum(sizes[name] for name in untouched),
        "left_out": list(found.notes),
    }


def _spaces_table(title: str, found: Blueprint) -> Table:
    """One line for each role and group, its layers counted."""
    table = Table(title=f"{title}: {found.architecture}", title_justify="left")
    for heading in ("space", "group", "copies", "layers", "dimension"):
        table.add_column(heading, justify="left" if heading in ("space", "group") else "right")
    for role in found.roles():
        alike: dict[tuple[str, int], list[Space]] = {}
        for space in found.spaces.values():
            if space.role == role:
                alike.setdefault((str(space.group), math.prod(space.copies)), []).append(space)
        for (group, copies), spaces in alike.items():
            layers = [space.layer for space in spaces if space.layer is not None]
            dimension = sum(space.dimension for space in spaces)
            shown = f"{dimension:,}" if dimension else "discrete"
            table.add_row(role, group, str(copies), str(len(layers)) if layers else "-", shown)
    return table


def _log10_order(space: Space) -> float:
    return space.group.log10_order * torch.Size(space.copies).numel()
