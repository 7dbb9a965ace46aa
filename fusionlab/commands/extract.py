"""``fusionlab extract``: the difference of a model from its base model as a LoRA adapter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from rich.progress import track
from rich.table import Table

from fusionlab import checkpoints, printing
from fusionlab.atomic import MIB, atomic_folder, refuse_existing, require_space
from fusionlab.checkpoints.adapted import HEADS, base_state, task_of
from fusionlab.checkpoints.card import CARD, adapter_card, parent
from fusionlab.checkpoints.extraction import Layer, extract, write_adapter
from fusionlab.checkpoints.files import is_adapter
from fusionlab.checkpoints.hub import locate
from fusionlab.checkpoints.huggingface import is_transformers
from fusionlab.checkpoints.names import short_names
from fusionlab.commands import parsing
from fusionlab.commands.option_groups import add_fields
from fusionlab.errors import InputError
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
    rank: int = 16


def run(argv: Sequence[str]) -> None:
    """Run the command.

    Raises:
        InputError: checkpoints or options that do not fit; nothing has been written then.
    """
    parser = parsing.make_parser("extract", DESCRIPTION, seed=False)
    add_fields(parser, ExtractOptions, positional=("ckpt",))
    parsing.add_output(parser)
    arguments = parsing.parse(parser, argv)
    if arguments.rank < 1:
        raise InputError(f"rank is {arguments.rank}; expected at least 1")
    output = expanded(arguments.output)
    refuse_existing(output, arguments.overwrite)
    base = locate(arguments.base)
    if is_adapter(base):
        raise InputError(f"{arguments.base} is an adapter itself; expected the base model that it changes")
    checkpoint = checkpoints.read(arguments.ckpt)
    model = checkpoint.model
    if not is_transformers(model):
        raise InputError(f"{arguments.ckpt} is a {checkpoint.format} checkpoint; expected a transformers folder")
    task = task_of(model)
    found = extract(model, base_state(model, base), arguments.rank, HEADS.get(task or "", ()), _shown)
    if not found.differs:
        raise InputError(f"{arguments.ckpt} is {arguments.base} itself; expected a model that differs from its base")
    factors = [factor for change in found.changes.values() for factor in (change.down, change.up)]
    tensors = [*found.saved.values(), *found.biases.values(), *factors]
    require_space(output, sum(tensor.numel() * tensor.element_size() for tensor in tensors) + MIB)
    names = short_names([arguments.ckpt, arguments.base])
    parents = [parent(name, locate(path)) for name, path in zip(names, (arguments.ckpt, arguments.base), strict=True)]
    shares = {f"captured of {layer}": f"{share:.1%}" for layer, share in found.captured.items()}
    card = adapter_card(parents[0], parents[1], {"rank": str(arguments.rank), **shares})
    with atomic_folder(output, arguments.overwrite) as temporary:
        write_adapter(found, temporary, arguments.base, task)
        (temporary / CARD).write_text(card, encoding="utf-8")
    console = printing.results()
    console.print(_table(found.captured))
    if found.modules:
        console.print(f"Saved whole: {', '.join(found.modules)}", style="dim", highlight=False)
    console.print(f"Written to {output}", highlight=False, soft_wrap=True)


def _shown(layers: Sequence[Layer]) -> Iterable[Layer]:
    """The layers, with a bar."""
    return track(layers, "decomposing", transient=True, console=printing.progress())


def _table(captured: Mapping[str, float]) -> Table:
    """The share that is captured, by kind of layer."""
    kinds: dict[str, list[float]] = {}
    for layer, share in captured.items():
        kinds.setdefault(re.sub(r"\d+", "*", layer), []).append(share)
    table = Table("layers", "count", "captured, mean", "least", title="Share of the difference's norm that is captured")
    for kind, shares in kinds.items():
        table.add_row(kind, str(len(shares)), f"{fmean(shares):.1%}", f"{min(shares):.1%}")
    return table
