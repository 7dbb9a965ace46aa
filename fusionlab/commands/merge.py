"""``fusionlab merge``: merge checkpoints that share a basis, without measuring."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from lightning.pytorch import seed_everything
from lightning.pytorch.utilities import rank_zero_only
from rich.console import Console
from rich.table import Table

from fusionlab import checkpoints
from fusionlab.atomic import MIB, refuse_existing, require_space
from fusionlab.checkpoints.card import merge_card
from fusionlab.commands import data_options, merging_options, parsing
from fusionlab.commands.example import add_example, own_module
from fusionlab.dtypes import Types, common_types, find_dtype, merge_note, stored_size
from fusionlab.errors import InputError
from fusionlab.evaluation.distance import parameter_distance
from fusionlab.evaluation.results import UNMATCHED
from fusionlab.experiment import averaged_note
from fusionlab.fusion import Candidate, Fuser, FusionPlan
from fusionlab.paths import expanded
from fusionlab.stages import run as run_stages
from fusionlab.trainers import make_trainer

DESCRIPTION = """Merge checkpoints as they are into one of the same format.

Fine-tunes of one base can be merged at once; models of different origin should be matched first (`fusionlab match`),
or use `fusionlab fuse`, which matches, merges and measures."""


def run(argv: Sequence[str]) -> None:
    """Run the command.

    Raises:
        InputError: checkpoints or options that do not fit; nothing has been written then.
    """
    parser = parsing.make_parser("merge", DESCRIPTION)
    parsing.add_checkpoints(parser)
    add_example(parser)
    parsing.add_output(parser)
    merging_options.add_merging(parser)
    data_options.add_inputs(parser)
    data_options.add_devices(parser)
    arguments = parsing.parse(parser, argv)
    seed_everything(arguments.seed, verbose=False)
    output, dtype = expanded(arguments.output), find_dtype(arguments.dtype)
    settings = data_options.trainer_options(arguments)
    refuse_existing(output, arguments.overwrite)

    module = own_module(arguments, argv)
    found = parsing.read_all(arguments.ckpts, module)
    models = {name: checkpoint.model for name, checkpoint in found.items()}
    methods = merging_options.merge_methods(arguments)
    if len(methods) > 1:
        raise InputError(f"method names {', '.join(methods)}; expected one (fuse compares several)")
    types = common_types(models.values()) if dtype is None else dtype
    require_space(output, stored_size(next(iter(models.values())), types) + MIB)
    plan = FusionPlan(methods=methods, weights=arguments.weights, seed=arguments.seed, dtype=dtype)
    fuser = Fuser(
        models,
        plan,
        data_options.inputs(arguments, list(models.values()), arguments.ckpts),
        merging_options.given_statistics(arguments),
        merging_options.base_model(arguments, module),
    )
    (method,) = methods
    merged = run_stages(fuser.merge(method, UNMATCHED), partial(make_trainer, settings, "merging"))
    made = {"matching": "none", **merging_options.described(arguments)}
    card = merge_card(merging_options.parents(found, arguments), made, next(iter(found.values())).format)
    notes = [note] if (note := merge_note(models, dtype)) else []
    notes += [averaged_note()] if fuser.averaged else []
    _write(merged, found, fuser.weights, output, arguments.overwrite, types, card, notes)


@rank_zero_only
def _write(
    merged: Candidate,
    found: Mapping[str, checkpoints.Checkpoint],
    weights: Sequence[float],
    output: Path,
    overwrite: bool,
    types: Types | torch.dtype,
    card: str,
    notes: Sequence[str],
) -> None:
    """Write the merge and tell how far it is from each model; one process of several does."""
    first = next(iter(found.values()))
    first.write(merged.model, output, overwrite, types, card)
    table = Table(title=f"Merged by {merged.method} in {merged.seconds:.2f} s", title_justify="left")
    table.add_column("model", overflow="fold")
    table.add_column("weight", justify="right")
    table.add_column("distance to the merge", justify="right")
    for (name, checkpoint), weight in zip(found.items(), weights, strict=True):
        distance = parameter_distance(checkpoint.model.state_dict(), merged.model.state_dict())
        table.add_row(name, f"{weight:.3f}", f"{distance:.4f}")
    console = Console()
    console.print(table)
    for note in notes:
        console.print(note, style="dim", highlight=False)
    console.print(f"Written to {output}", highlight=False, soft_wrap=True)
