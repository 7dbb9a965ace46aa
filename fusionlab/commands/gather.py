"""``fusionlab gather``: statistics of a model over data, to be handed over instead of the data."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch import LightningDataModule, seed_everything
from lightning.pytorch.utilities import rank_zero_only
from rich.table import Table

from fusionlab import checkpoints, printing
from fusionlab.atomic import refuse_existing, require_space
from fusionlab.commands import data_options, own_data, parsing
from fusionlab.commands.example import add_example, own_module
from fusionlab.commands.option_groups import add_fields, told
from fusionlab.errors import InputError
from fusionlab.inputs import Inputs
from fusionlab.paths import expanded
from fusionlab.statistics import Activations, Fisher, Grams, Statistics
from fusionlab.statistics.files import save, tensors_of
from fusionlab.statistics.gather import gather
from fusionlab.trainers import make_trainer

DESCRIPTION = """Gather the statistics of a model that merge methods need, in one pass over training data.

The file holds sums over all data (and, with activations, a sample of hidden vectors), tied to this very model; it can
be handed over instead of the data."""


@dataclass(frozen=True)
class GatherOptions:
    """The statistics that are gathered, and what from.

    Attributes:
        checkpoint: the model: a folder, a .ckpt file or a hub id.
        data: what is gone through, its training split, once and in order: a file (CSV, Parquet, JSONL, CoNLL), a
            folder or a hub id, whose columns are guessed; or a data module by the name of its class, with its settings
            as ``--data.SETTING``.
        kinds: of statistics, with commas between them: ``gram``, ``fisher``, ``activations``.
        samples: training samples to draw; all if not given.
        labels: for ``fisher``, whose: ``model`` (drawn from it), ``expected`` (over all of its answers) or
            ``empirical`` (those of the data).
        rows: for ``activations``, hidden vectors kept of each map.
    """

    checkpoint: str
    data: LightningDataModule
    kinds: str = "gram"
    samples: int | None = None
    labels: str = "model"
    rows: int = 4096


def run(argv: Sequence[str]) -> None:
    """Run the command.

    Raises:
        InputError: a checkpoint, options or data that do not fit; nothing has been written then.
    """
    parser = parsing.make_parser("gather", DESCRIPTION)
    words = f"{told(GatherOptions, 'data')} {data_options.known_data()}"
    add_fields(parser, GatherOptions, changes={"data": {"help": words}}, positional=("checkpoint",))
    parsing.add_architecture(parser)
    add_example(parser)
    parsing.add_output(parser, help="File to write, by convention *.safetensors.")
    parsing.add_json(parser)
    data_options.add_devices(parser)
    arguments = parsing.parse(parser, own_data.written_out(argv, several=False))
    seed_everything(arguments.seed, verbose=False)
    output = expanded(arguments.output)
    refuse_existing(output, arguments.overwrite)
    trainer = partial(make_trainer, data_options.trainer_options(arguments), "gathering")

    found_model = checkpoints.read(arguments.checkpoint, own_module(arguments, argv))
    own_data.fitted(arguments, [found_model], "gather", "inputs")
    model = found_model.model
    kinds = [kind.strip() for kind in arguments.kinds.split(",") if kind.strip()]
    inputs = Inputs.of([arguments.data], 1, arguments.samples, arguments.seed)
    if inputs is None:
        raise InputError(f"{type(arguments.data).__name__} has no training data; expected a training split")
    found = gather(
        model,
        inputs.shared,
        kinds,
        trainer=trainer,
        ready=lambda size: require_space(output, size),
        **_settings(kinds, arguments),
    )
    _write(found, output, arguments)


@rank_zero_only
def _write(found: dict[str, Statistics], output: Path, arguments: Namespace) -> None:
    """Write the file and tell what is in it; one process of several does."""
    save(found, output, arguments.overwrite)
    missing = sorted({s.settings["left_out"] for s in found.values() if "left_out" in s.settings})
    lines = [
        {
            "kind": kind,
            "examples": one.examples,
            "rows": _rows(one),
            "bytes": _bytes(one),
            "seconds": float(one.settings["seconds"]),
        }
        for kind, one in found.items()
    ]
    model = arguments.checkpoint
    printing.publish({"model": model, "statistics": lines, "left_out": missing, "output": str(output)})
    console = printing.results()
    console.print(_table(found, model))
    for left_out in missing:
        console.print(f"Left out: {left_out}", style="dim", highlight=False)
    console.print(f"Written to {output}", highlight=False, soft_wrap=True)


def _settings(kinds: Sequence[str], arguments: Namespace) -> dict[str, Any]:
    """The settings that the chosen kinds have."""
    settings: dict[str, Any] = {}
    if Activations.kind in kinds:
        settings |= {"samples": arguments.rows, "seed": arguments.seed}
    if Fisher.kind in kinds:
        settings |= {"labels": arguments.labels, "seed": arguments.seed}
    return settings


def _table(found: dict[str, Statistics], checkpoint: str) -> Table:
    """One line for each kind of statistics."""
    table = Table(title=f"Statistics of {checkpoint}", title_justify="left")
    table.add_column("kind")
    for heading in ("examples", "rows", "size", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    for kind, statistics in found.items():
        rows, seconds = _rows(statistics), statistics.settings["seconds"]
        shown = printing.size_words(_bytes(statistics))
        table.add_row(kind, str(statistics.examples), "-" if rows is None else str(rows), shown, seconds)
    return table


def _bytes(statistics: Statistics) -> int:
    """The size of all tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(statistics))


def _rows(statistics: Statistics) -> int | None:
    """The number of rows of the largest sum or sample; None for Fisher information, which is of examples."""
    if isinstance(statistics, Grams):
        return max(statistics.rows.values(), default=0)
    if isinstance(statistics, Activations):
        return max((tensor.shape[1] for tensor in statistics.inputs.values()), default=0)
    return None
