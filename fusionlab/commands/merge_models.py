"""`fusionlab merge` of models that must be in memory: for methods and formats that need whole ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from jsonargparse import Namespace
from lightning.pytorch import seed_everything
from lightning.pytorch.utilities import rank_zero_only

from fusionlab import checkpoints
from fusionlab.atomic import MIB, atomic_folder, require_space
from fusionlab.batch_norm import averaged_note
from fusionlab.checkpoints.card import CARD, merge_card
from fusionlab.commands import data_options, merge_lora, merging_options, own_data, parsing
from fusionlab.commands.example import own_module
from fusionlab.commands.extracted import difference
from fusionlab.commands.merge_output import tell
from fusionlab.commands.outside import tell_outside
from fusionlab.commands.plain_folder import library_of, write_plain_folder
from fusionlab.commands.plain_place import folder_of, is_folder
from fusionlab.commands.repeat import REPEAT, with_hashes
from fusionlab.commands.sentence_modules import merged_modules
from fusionlab.dtypes import Types, common_types, find_dtype, merge_note, stored_size
from fusionlab.errors import InputError
from fusionlab.evaluation.distance import parameter_distance
from fusionlab.evaluation.results import UNMATCHED
from fusionlab.finite import refuse_not_finite
from fusionlab.fusion import Candidate, Fuser, FusionPlan
from fusionlab.merging import find_method
from fusionlab.models import aliases
from fusionlab.paths import expanded
from fusionlab.stages import run as run_stages
from fusionlab.streaming import Recipe, shard_bytes
from fusionlab.trainers import make_trainer


def run(arguments: Namespace, argv: Sequence[str], repeat: str) -> None:
    """Merge as the arguments of the command say.

    Args:
        arguments: all of them, parsed.
        argv: as they were given.
        repeat: a config that repeats the command.

    Raises:
        InputError: checkpoints or options that do not fit; nothing has been written then.
    """
    seed_everything(arguments.seed, verbose=False)
    output, dtype = expanded(arguments.output), find_dtype(arguments.dtype)
    settings = data_options.trainer_options(arguments)
    methods = merging_options.merge_methods(arguments)
    if len(methods) > 1:
        raise InputError(f"method names {', '.join(methods)}; expected one (fuse compares several)")
    module = own_module(arguments, argv)
    found = parsing.read_all(arguments.ckpts, module, arguments.base, arguments.names)
    merging_options.begin_hashes(found, arguments)
    own_data.fitted(arguments, list(found.values()), "merge")
    models = {name: checkpoint.model for name, checkpoint in found.items()}
    types = common_types(models.values()) if dtype is None else dtype
    size = stored_size(next(iter(models.values())), types)
    require_space(output, (1 if folder_of(output, next(iter(found.values())).location) is None else 2) * size + MIB)
    plan = FusionPlan(methods=methods, weights=arguments.weights, seed=arguments.seed, dtype=dtype)
    inputs = data_options.inputs(arguments, list(models.values()), arguments.ckpts)
    fuser = Fuser(
        models,
        plan,
        inputs,
        merging_options.given_statistics(arguments),
        merging_options.base_model(arguments, found, module),
    )
    (method,) = methods
    base = merge_lora.base_of_merge(arguments, found) if arguments.written_as == "lora" else None
    recipe = Recipe(find_method(method), methods[method], fuser.weights, arguments.seed, dtype)
    # Modules that differ are refused before any work.
    modules, notes = ({}, []) if base is not None else merged_modules(found, recipe, arguments.base)
    merged = run_stages(fuser.merge(method, UNMATCHED), partial(make_trainer, settings, "merging"))
    refuse_not_finite("the merge", merged.model)
    if base is not None:
        change = merge_lora.changes_of(arguments, found, fuser.weights, merged.model)
        if change is None:
            kind = next(iter(found.values())).format
            change = difference(merged.model, "the merge", kind, base, arguments.rank)
        texts = merge_lora.texts_of(arguments, found, repeat, merged.notes)
        given = found, fuser.weights, base, texts, _told(merged)
        rank_zero_only(merge_lora.write)(arguments, change, merged.model, *given)
        return
    made = {"matching": "none", **merging_options.described(arguments)}
    made |= merging_options.found_by_method(merged.notes)
    parents = merging_options.parents(found, arguments)
    card = merge_card(parents, made, library_of(next(iter(found.values()))))
    texts = {CARD: card, REPEAT: with_hashes(repeat, parents)}
    notes += [note] if (note := merge_note(models, dtype)) else []
    notes += [averaged_note()] if fuser.averaged else []
    notes += fuser.base.notes if fuser.base is not None and fuser.needs_base else []
    notes += _told(merged)
    notes += [] if fuser.looks_at_inputs or inputs is None else ["Nothing looked at the inputs that --probes names."]
    most = None if arguments.max_shard_size is None else shard_bytes(arguments.max_shard_size)
    _write(merged, found, fuser.weights, output, arguments.overwrite, types, {**texts, **modules}, most, notes)


def _told(merged: Candidate) -> list[str]:
    """The sentences that the merge method told, behind its name."""
    return [f"{merged.method}: {note}" for note in merged.notes]


@rank_zero_only
def _write(
    merged: Candidate,
    found: Mapping[str, checkpoints.Checkpoint],
    weights: Sequence[float],
    output: Path,
    overwrite: bool,
    types: Types | torch.dtype,
    texts: Mapping[str, str | bytes | None],
    shard_bytes: int | None,
    notes: Sequence[str],
) -> None:
    """Write the merge and tell how far it is from each model; one process of several does."""
    first = next(iter(found.values()))
    folder, alone = folder_of(output, first.location), is_folder(output, first.location)
    tell_outside([first], kept=not alone)
    if folder is None and not alone:
        first.write(merged.model, output, overwrite, types, texts, shard_bytes)
    elif shard_bytes is not None:
        raise InputError(f"{first.source} is a {first.format} checkpoint; expected a transformers folder to shard")
    else:
        # The folder gets its name last, so that neither is there where one cannot be written.
        with atomic_folder(folder or output, overwrite) as temporary:
            write_plain_folder(merged.model, first, temporary, types, texts)
            if folder is not None:
                first.write(merged.model, output, overwrite, types)
        if folder is not None:
            notes = [*notes, f"The same model as a plain folder, with its card: {folder}"]
    state = merged.model.state_dict()
    rows = []
    for (name, checkpoint), weight in zip(found.items(), weights, strict=True):
        own = checkpoint.model.state_dict()
        # What is tied is one parameter.
        tied = aliases(own)
        distance = parameter_distance({n: tensor for n, tensor in own.items() if n not in tied}, state)
        rows.append((name, weight, distance))
    tell(merged.method, merged.seconds, rows, notes, output)
