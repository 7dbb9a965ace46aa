"""``fusionlab shrink``: a model brought into a smaller architecture, as an ordinary checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser
from lightning.pytorch import seed_everything
from rich.table import Table
from torch import nn

from fusionlab import checkpoints, printing
from fusionlab.atomic import MIB, refuse_existing, require_space
from fusionlab.checkpoints.card import CARD, parent, shrunk_card
from fusionlab.checkpoints.names import short_names
from fusionlab.commands import data_options, own_data, parsing
from fusionlab.commands.example import add_example, own_module
from fusionlab.commands.grow import as_grown, read_size
from fusionlab.commands.matching_options import PresetOptions, untied
from fusionlab.commands.option_groups import add_fields
from fusionlab.dtypes import stored_size
from fusionlab.errors import InputError
from fusionlab.growing import Shrinkage, shrunk
from fusionlab.paths import expanded
from fusionlab.polish import PolishOptions, polish

DESCRIPTION = """Write a model in a smaller architecture: less width, layers, heads or units.

What says most in each space is kept, by weights; a model that fusionlab grow made comes back exactly. With --polish
the large model is then distilled into what is left, on --probes or on synthetic inputs, without labels."""


@dataclass(frozen=True)
class ShrinkOptions:
    """The model to shrink, the size, and what follows.

    Attributes:
        ckpt: checkpoint of the large model: a folder, a .ckpt file or a hub id.
        like: a checkpoint of the same class that is larger in no dimension, or a folder of transformers or a file with
            its config alone. Its weights are not looked at.
        polish: steps in which the large model is distilled into the shrunk one; none if not given.
    """

    ckpt: str
    like: str
    polish: int | None = None


def run(argv: Sequence[str]) -> None:
    """Run the command.

    Raises:
        InputError: checkpoints or options that do not fit, or a model that cannot be shrunk; nothing has been written
            then.
    """
    arguments = parsing.parse(_parser(), own_data.written_out(argv, several=False))
    seed_everything(arguments.seed, verbose=False)
    options = None if arguments.polish is None else PolishOptions(steps=arguments.polish, seed=arguments.seed)
    if options is None and (arguments.probes is not None or arguments.samples is not None):
        raise InputError("inputs are what polish looks at, and none was asked for; expected --polish with them")
    output = expanded(arguments.output)
    refuse_existing(output, arguments.overwrite)
    large = checkpoints.read(arguments.ckpt, own_module(arguments, argv))
    own_data.fitted(arguments, [large], "shrink")
    smaller = read_size(arguments.like)
    models: dict[str, Any] = untied({"large": large.model}, arguments)
    models["like"] = smaller.model if isinstance(smaller, checkpoints.Checkpoint) else smaller
    if isinstance(models["like"], nn.Module):
        models |= untied({"like": models["like"]}, arguments)
    elif arguments.untie:
        models["like"].tie_word_embeddings = False
    found = shrunk(models["large"], models["like"])
    result = found.model
    require_space(output, stored_size(result) + MIB)
    if options is not None:
        inputs = data_options.inputs(arguments, [models["large"]], [arguments.ckpt], needed=True)
        assert inputs is not None
        result = polish(result, [models["large"]], inputs.shared, options)
    names = short_names([arguments.ckpt, arguments.like])
    made = {"logits differ by": f"{found.differs:.1e} of the largest, before any polish"}
    made |= {} if options is None else {"polish": f"{options.steps} steps"}
    card = shrunk_card(parent(names[0], large.location), names[1], made, large.format)
    both = {"large": large} | ({"like": smaller} if isinstance(smaller, checkpoints.Checkpoint) else {})
    as_grown(both, {"large": result})["large"].write(result, output, arguments.overwrite, texts={CARD: card})
    _tell(found, names[0], output)


def _parser() -> ArgumentParser:
    parser = parsing.make_parser("shrink", DESCRIPTION)
    add_fields(parser, ShrinkOptions, positional=("ckpt",))
    add_fields(parser, PresetOptions, ("untie",))
    add_example(parser)
    parsing.add_output(parser)
    parsing.add_json(parser)
    data_options.add_inputs(parser)
    return parser


def _tell(found: Shrinkage[Any], name: str, output: Path) -> None:
    """Print what was kept, and how far the function moved."""
    table = Table("", name, "shrunk", title=f"{name} in a smaller architecture", title_justify="left")
    for stack in found.placements:
        table.add_row(f"layers of {stack.small}", str(stack.length), str(len(stack.positions)))
    table.add_row("parameters", *(f"{count:,}" for count in found.parameters))
    printing.publish(
        {
            "model": name,
            "parameters": dict(zip(("before", "after"), found.parameters, strict=True)),
            "layers": {one.large: {"length": one.length, "kept": list(one.positions)} for one in found.placements},
            "logits_differ_by": {"float64": found.differs},
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
    console.print(f"Written to {output}", highlight=False, soft_wrap=True)
