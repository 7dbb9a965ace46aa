"""``fusionlab inspect``: a model's spaces, its symmetry, how it was found, and what it does not cover."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from fusionlab import checkpoints, printing
from fusionlab.atomic import MIB, atomic_file, refuse_existing, require_space
from fusionlab.commands import parsing
from fusionlab.commands.example import add_example, own_module
from fusionlab.commands.option_groups import add_fields
from fusionlab.errors import InputError
from fusionlab.evaluation.symmetry_rows import counted, found_alike, kinds_of, legend_of, name_of_kind, words_of
from fusionlab.paths import expanded
from fusionlab.symmetry import Blueprint, Space, blueprint
from fusionlab.symmetry.copies import expert_spreads

# Experts that differ from their mean by less than this share of their length are called copies.
COPIES = 0.1
# Before the names of parameters in a note of a blueprint.
SILENT = "the outputs do not depend on "
DESCRIPTION = """Show the symmetry of a model.

Its spaces are listed with the groups that may act on them and how these were found, then the parameters that no group
acts on."""


@dataclass(frozen=True)
class InspectOptions:
    """The ways a symmetry is shown.

    Attributes:
        picture: PNG file to write: spaces as rows, layers as columns.
    """

    picture: str | None = None


def run(argv: Sequence[str]) -> None:
    """Run the command.

    Raises:
        InputError: a checkpoint that cannot be read, or a picture that cannot be written.
        SymmetryError: a model whose symmetry is neither described nor can be inferred.
    """
    parser = parsing.make_parser("inspect", DESCRIPTION, seed=False)
    add_fields(parser, parsing.CheckpointOptions, ("ckpt",), positional=("ckpt",))
    parsing.add_architecture(parser)
    add_example(parser)
    add_fields(parser, InspectOptions)
    add_fields(parser, parsing.SharedOptions, ("overwrite", "json"))
    arguments = parsing.parse(parser, argv)
    picture = None if arguments.picture is None else expanded(arguments.picture)
    if picture is not None:
        if picture.suffix.lower() != ".png":
            raise InputError(f"picture is {arguments.picture}; expected the name of a PNG file, such as symmetry.png")
        refuse_existing(picture, arguments.overwrite)
        require_space(picture, MIB)
    model = checkpoints.read(arguments.ckpt, own_module(arguments, argv)).model
    found = blueprint(model)
    sizes = {name: tensor.numel() for name, tensor in model.state_dict().items()}
    summary = summarise(found, sizes)
    summary["expert_spreads"] = spreads = expert_spreads(model.state_dict(), found)
    if picture is not None:
        _draw(found, arguments.ckpt, picture, arguments.overwrite)
    printing.publish(summary)
    console = printing.results()
    console.print(_spaces_table(arguments.ckpt, found))
    console.print(f"{'; '.join(f'{name} {words}' for name, words in legend_of(found).items())}.", highlight=False)
    covered = 100 * (1 - summary["untouched_numbers"] / max(1, summary["numbers"]))
    console.print(
        f"Symmetry: {found.dimension:,} continuous dimensions and 10^{summary['log10_order']:,.0f} permutations, "
        f"in {summary['numbers']:,} parameters.\n"
        f"Coverage: {covered:.3f} % of the parameters are moved by some space. Untouched: "
        f"{counted(found.untouched())}.",
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
    for name, spread in spreads.items():
        if spread < COPIES:
            space = found.spaces[name]
            console.print(
                f"Copies: the {space.group.size * space.count} experts of {name} differ from their mean by "
                f"{spread:.1%} of their length, as after upcycling a dense model; their order means little.",
                highlight=False,
                soft_wrap=True,
            )
    console.print(f"How it was found: {found.origin}.", highlight=False)
    if found.trials:
        console.print(_trials_table(found))
    for note in found.notes:
        console.print(f"Left out: {of_all_layers(note)}.", highlight=False)
    if picture is not None:
        console.print(f"Picture: {picture}", highlight=False, soft_wrap=True)


def summarise(found: Blueprint, sizes: dict[str, int]) -> dict[str, Any]:
    """The symmetry of a model as plain data.

    Args:
        found: its blueprint.
        sizes: how many numbers each parameter has.
    """
    untouched = found.untouched()
    kinds = {space.name: kind for kind in kinds_of(found) for space in kind.spaces}
    return {
        "architecture": found.architecture,
        "origin": found.origin,
        "groups": legend_of(found),
        "spaces": [
            {
                "name": space.name,
                "role": space.role,
                "layer": space.layer,
                "group": str(space.group),
                "group_folded": str(kinds[space.name].folded),
                "norms_folded": kinds[space.name].norms,
                "copies": math.prod(space.copies),
                "dimension": space.dimension,
                "tried": [
                    {
                        "group": trial.group.label,
                        "folded": trial.folded,
                        "outcome": trial.outcome,
                        "change": trial.change,
                    }
                    for trial in found.trials.get(space.name, ())
                ],
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


def of_all_layers(note: str) -> str:
    """A note with ``*`` for the numbers of parameters that the outputs do not depend on in several layers.

    What was inferred from a small model names the layers of that one, which are fewer.

    Args:
        note: of a blueprint.
    """
    start, silent, names = note.partition(SILENT)
    known = names.split(", ")
    count = Counter(map(name_of_kind, known))
    told = dict.fromkeys(name_of_kind(name) if count[name_of_kind(name)] > 1 else name for name in known)
    return f"{start}{silent}{', '.join(told)}" if silent else note


def _draw(found: Blueprint, name: str, picture: Path, overwrite: bool) -> None:
    """Write the picture."""
    # Tables need not wait for what draws.
    from fusionlab.evaluation.drawing import png  # noqa: PLC0415
    from fusionlab.evaluation.symmetry_figure import symmetry_figure  # noqa: PLC0415

    with atomic_file(picture, overwrite) as temporary:
        temporary.write_bytes(png(symmetry_figure(found, name)))


def _spaces_table(title: str, found: Blueprint) -> Table:
    """One line for the spaces that differ in nothing but their place."""
    table = Table(title=f"{title}: {found.architecture}", title_justify="left")
    for heading in ("space", "role", "group", "folded"):
        table.add_column(heading, overflow="fold")
    for heading in ("copies", "layers", "spaces", "dimension"):
        table.add_column(heading, justify="right")
    for kind in kinds_of(found):
        first = kind.first
        folded = "" if kind.folded == first.group else str(kind.folded)
        shown = f"{kind.dimension:,}" if kind.dimension else "discrete"
        counts = (str(first.count), kind.layers, str(len(kind.spaces)), shown)
        table.add_row(kind.name, first.role, str(first.group), folded, *counts)
    return table


def _trials_table(found: Blueprint) -> Table:
    """A table of the groups tried on the spaces, in words; spaces with which it went the same way are one row."""
    title = "Groups tried by random elements; changes of the outputs in float64, relative to the largest"
    # Names of one row stand below each other, and lines between rows tell them from those of the next.
    table = Table(title=title, title_justify="left", show_lines=True)
    table.add_column("spaces", overflow="fold")
    table.add_column("from large to small", overflow="fold", ratio=1)
    for kinds in found_alike(found):
        table.add_row("\n".join(dict.fromkeys(kind.name for kind in kinds)), words_of(kinds, found))
    return table


def _log10_order(space: Space) -> float:
    return space.group.log10_order * torch.Size(space.copies).numel()
