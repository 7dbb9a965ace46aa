"""``fusionlab grow``: a model embedded into a larger architecture, as an ordinary checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from fusionlab import checkpoints
from fusionlab.atomic import MIB, refuse_existing, require_space
from fusionlab.checkpoints.card import CARD, grown_card, parent
from fusionlab.checkpoints.files import CONFIG
from fusionlab.checkpoints.huggingface_config import load_config
from fusionlab.checkpoints.names import short_names
from fusionlab.commands import parsing
from fusionlab.commands.grow_output import tell
from fusionlab.commands.grow_stream import by_parts
from fusionlab.commands.matching_options import PresetOptions, untied
from fusionlab.commands.option_groups import add_fields
from fusionlab.dtypes import stored_size, types_of
from fusionlab.errors import InputError
from fusionlab.growing import Growth, described, grown, grown_to_one_size
from fusionlab.inputs import Inputs
from fusionlab.paths import expanded

DESCRIPTION = """Write a model in a larger architecture: more width, layers, heads or units, and the same function.

That the function is unchanged is checked in float64 on random inputs before anything is written. The grown model and
the larger one can be matched and merged as two models of one size."""


@dataclass(frozen=True)
class GrowOptions:
    """The model to grow, and the size.

    Attributes:
        ckpt: checkpoint of the small model: a folder, a .ckpt file or a hub id.
        like: a checkpoint of the same class that is as large in every dimension, or a folder of transformers or a file
            with its config alone.
        fill: whether what is new and changes nothing is taken from the larger model, and not zero. The grown model
            computes the same; matched and merged with the larger one it keeps more.
    """

    ckpt: str
    like: str
    fill: bool = False


def run(argv: Sequence[str]) -> None:
    """Run the command.

    Raises:
        InputError: checkpoints or options that do not fit, or a model that cannot be grown; nothing has been written
            then.
    """
    parser = parsing.make_parser("grow", DESCRIPTION, seed=False)
    add_fields(parser, GrowOptions, positional=("ckpt",))
    add_fields(parser, PresetOptions, ("untie",))
    parsing.add_output(parser)
    parsing.add_json(parser)
    arguments = parsing.parse(parser, argv)
    output = expanded(arguments.output)
    refuse_existing(output, arguments.overwrite)
    names = short_names([arguments.ckpt, arguments.like])
    if (notes := by_parts(arguments, output, config_alone(arguments.like), names)) is None:
        return
    small = checkpoints.read(arguments.ckpt)
    larger = read_size(arguments.like)
    models: dict[str, Any] = {"like": larger.model if isinstance(larger, checkpoints.Checkpoint) else larger}
    if isinstance(models["like"], nn.Module):
        models = untied({"small": small.model, **models}, arguments)
    else:
        models |= untied({"small": small.model}, arguments)
        if arguments.untie:
            models["like"].tie_word_embeddings = False
    growth = grown(models["small"], models["like"], fill=arguments.fill)
    require_space(output, stored_size(growth.model) + MIB)
    made = {"grown": described(growth) or "nothing", "logits differ by": f"{growth.stored:.1e} of the largest"}
    card = grown_card(parent(names[0], small.location), names[1], made, small.format)
    both = {"small": small} | ({"like": larger} if isinstance(larger, checkpoints.Checkpoint) else {})
    as_grown(both, {"small": growth.model})["small"].write(
        growth.model, output, arguments.overwrite, texts={CARD: card}
    )
    tell(growth, names[0], output, notes)


def of_one_size(
    models: Mapping[str, nn.Module], inputs: Inputs | None, matches: bool
) -> tuple[dict[str, nn.Module], dict[str, Growth[nn.Module]]]:
    """End models of one size, and the growths of those that were smaller.

    Args:
        models: by name; not modified.
        inputs: to find where layers go by.
        matches: whether they will be matched, so that what is new is taken from the others.

    Raises:
        InputError: sizes that cannot become one.
    """
    growths = grown_to_one_size(models, None if inputs is None else inputs.shared, matches)
    return {**models, **{name: growth.model for name, growth in growths.items()}}, growths


def as_grown(
    found: Mapping[str, checkpoints.Checkpoint], made: Mapping[str, nn.Module]
) -> dict[str, checkpoints.Checkpoint]:
    """Checkpoints as they are written once some of their models have the size of another.

    Args:
        found: as they were read.
        made: the models of another size, by name.
    """
    # Formats other than transformers' write sizes that the model itself does not know: those of a model that has them.
    sized = next((checkpoint for name, checkpoint in found.items() if name not in made), None)
    written = dict(found)
    for name, model in made.items():
        own = found[name]
        kept = own if sized is None or own.format == "transformers" else sized
        written[name] = replace(own, model=model, location=kept.location, dtypes=types_of(model))
    return written


def read_size(path: str) -> Any:
    """The checkpoint that gives a size, or the config of transformers where there is no more than that.

    Args:
        path: a checkpoint, the folder of a config, or a file ``config.json``.

    Raises:
        InputError: nothing that can be read.
    """
    folder = config_alone(path)
    return checkpoints.read(path) if folder is None else load_config(folder)


def config_alone(path: str) -> Path | None:
    """The folder of a config of transformers, where a size is given by that alone; None for a checkpoint.

    Args:
        path: a checkpoint, the folder of a config, or a file ``config.json``.

    Raises:
        InputError: there is no such file.
    """
    place = Path(expanded(path))
    folder = place.parent if place.name == CONFIG else place
    has_weights = any(folder.glob("*.safetensors")) or any(folder.glob("*.bin")) or place.suffix == ".ckpt"
    if place.name == CONFIG and not place.is_file():
        raise InputError(f"{path}: there is no such file; expected a checkpoint, or the config of one")
    return folder if place.name == CONFIG or ((folder / CONFIG).is_file() and not has_weights) else None
