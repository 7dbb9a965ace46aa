"""``fusionlab extract``: the difference of a model from its base model as a LoRA adapter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusionlab import checkpoints, printing
from fusionlab.atomic import refuse_existing
from fusionlab.checkpoints.card import CARD, adapter_card, parent
from fusionlab.checkpoints.hub import locate
from fusionlab.checkpoints.names import short_names
from fusionlab.commands import parsing
from fusionlab.commands.extracted import (
    RANK,
    captured_words,
    difference,
    refuse_base,
    refuse_rank,
    tell_difference,
    write_difference,
)
from fusionlab.commands.option_groups import add_fields
from fusionlab.paths import expanded

DESCRIPTION = """Write the difference of a model from its base model as a LoRA adapter, as PEFT reads it.

Each layer's difference becomes its best approximation of the rank that is asked for; what has no two factors (norms,
heads that the base model has not) is saved whole."""


@dataclass(frozen=True)
class ExtractOptions:
    """The models of an extraction, and its rank.

    Attributes:
        ckpt: the fine-tuned model, or a merge: a folder of transformers or a hub id.
        base: the model that it was fine-tuned from.
        rank: of every layer's change.
    """

    ckpt: str
    base: str
    rank: int = RANK


def run(argv: Sequence[str]) -> None:
    """Run the command.

    Raises:
        InputError: checkpoints or options that do not fit; nothing has been written then.
    """
    parser = parsing.make_parser("extract", DESCRIPTION, seed=False)
    add_fields(parser, ExtractOptions, positional=("ckpt",))
    parsing.add_output(parser)
    parsing.add_json(parser)
    arguments = parsing.parse(parser, argv)
    refuse_rank(arguments.rank)
    output = expanded(arguments.output)
    refuse_existing(output, arguments.overwrite)
    refuse_base(arguments.base)
    checkpoint = checkpoints.read(arguments.ckpt)
    found = difference(checkpoint.model, arguments.ckpt, checkpoint.format, arguments.base, arguments.rank)
    names = short_names([arguments.ckpt, arguments.base])
    parents = [parent(name, locate(path)) for name, path in zip(names, (arguments.ckpt, arguments.base), strict=True)]
    card = adapter_card(parents[0], parents[1], {"rank": str(arguments.rank), **captured_words(found)})
    write_difference(found, checkpoint.model, arguments.base, output, arguments.overwrite, {CARD: card})
    printing.publish(
        {
            "model": names[0],
            "base": names[1],
            "rank": arguments.rank,
            "captured": found.captured,
            "saved_whole": list(found.modules),
            "output": str(output),
        }
    )
    tell_difference(found, output)
