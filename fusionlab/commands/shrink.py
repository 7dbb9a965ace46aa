"""``fusionlab shrink``: a model brought into a smaller architecture, as an ordinary checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from lightning.pytorch import seed_everything
from torch import nn

from fusionlab import checkpoints
from fusionlab.atomic import MIB, refuse_existing, require_space
from fusionlab.checkpoints.card import CARD
from fusionlab.checkpoints.names import short_names
from fusionlab.commands import data_options, own_data, parsing
from fusionlab.commands.example import add_example, own_module
from fusionlab.commands.grow import as_grown, config_alone, read_size
from fusionlab.commands.matching_options import PresetOptions, untied
from fusionlab.commands.option_groups import add_fields
from fusionlab.commands.shrink_output import card, tell
from fusionlab.commands.shrink_stream import by_parts
from fusionlab.dtypes import stored_size
from fusionlab.errors import InputError
from fusionlab.growing import shrunk
from fusionlab.paths import expanded
from fusionlab.polish import PolishOptions, polish
from fusionlab.types import Model

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
    given = (arguments.probes, arguments.samples, arguments.length)
    if options is None and any(value is not None for value in given):
        raise InputError("inputs are what polish looks at, and none was asked for; expected --polish with them")
    output = expanded(arguments.output)
    refuse_existing(output, arguments.overwrite)
    names = short_names([arguments.ckpt, arguments.like])
    polishing = None if options is None else _polishing(arguments, options)
    if (notes := by_parts(arguments, output, config_alone(arguments.like), names, polishing)) is None:
        return
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
        result = _polished(result, models["large"], arguments, options)
    text = card(found, names, large.location, large.format, arguments.polish)
    both = {"large": large} | ({"like": smaller} if isinstance(smaller, checkpoints.Checkpoint) else {})
    as_grown(both, {"large": result})["large"].write(result, output, arguments.overwrite, texts={CARD: text})
    tell(found, names[0], output, notes)


def _polished(result: Model, large: nn.Module, arguments: Namespace, options: PolishOptions) -> Model:
    """The shrunk model, once it has learned from the large one."""
    inputs = data_options.inputs(arguments, [large], [arguments.ckpt], needed=True)
    assert inputs is not None
    return polish(result, [large], inputs.shared, inputs.suited(options))


def _polishing(arguments: Namespace, options: PolishOptions) -> Callable[[Model], Model]:
    """The polish of a shrunk model whose large one has not been read yet."""

    def polishing(result: Model) -> Model:
        large = checkpoints.read(arguments.ckpt)
        own_data.fitted(arguments, [large], "shrink")
        return _polished(result, large.model, arguments, options)

    return polishing


def _parser() -> ArgumentParser:
    parser = parsing.make_parser("shrink", DESCRIPTION)
    add_fields(parser, ShrinkOptions, positional=("ckpt",))
    add_fields(parser, PresetOptions, ("untie",))
    add_example(parser)
    parsing.add_output(parser)
    parsing.add_json(parser)
    data_options.add_inputs(parser)
    return parser
