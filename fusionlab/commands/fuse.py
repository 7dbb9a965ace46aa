"""``fusionlab fuse``: match, merge, measure and report; the main job."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from lightning.pytorch import seed_everything
from lightning.pytorch.utilities import rank_zero_only

from fusionlab import growing, printing
from fusionlab.advice import AUTO, Choice, advice_on, choose, read_weights
from fusionlab.atomic import refuse_existing, require_space
from fusionlab.checkpoints.card import merge_card
from fusionlab.commands import (
    data_options,
    fuse_choice,
    fuse_stream,
    matching_options,
    merging_options,
    own_data,
    parsing,
)
from fusionlab.commands.differences import tell_differences
from fusionlab.commands.example import add_example, own_module
from fusionlab.commands.fuse_output import advised_note, index_of_fusion, size_of_merge, way_back, write_fusion
from fusionlab.commands.fuse_shape import is_of_lightning
from fusionlab.commands.grow import as_grown, of_one_size
from fusionlab.commands.option_groups import add_fields, told
from fusionlab.commands.plain_folder import library_of
from fusionlab.commands.pushing import push_output, refuse_unpushable
from fusionlab.commands.repeat import repeat_config
from fusionlab.commands.sentence_modules import modules_of_fusion
from fusionlab.dtypes import common_types, find_dtype
from fusionlab.errors import InputError
from fusionlab.evaluation.card_table import card_table
from fusionlab.evaluation.wording import listing
from fusionlab.experiment import REPORT_BYTES, SHOWN_EXAMPLES, Plan
from fusionlab.experiment import run as run_experiment
from fusionlab.fusion import FusionPlan
from fusionlab.fusion.searching import refuse_search
from fusionlab.matching.align import refuse_anchor
from fusionlab.matching.options import describe
from fusionlab.matching.recipe import Recipe
from fusionlab.paths import expanded
from fusionlab.polish import PolishOptions
from fusionlab.search import SearchOptions, refuse_journal

DESCRIPTION = """Match end models, merge them and show whether it helped.

End models, the unmatched merge and the matched merge are measured side by side; the matched merge, tables, plots,
TensorBoard logs and report.html go into the output folder. End models of different sizes are grown to one size
first, as fusionlab grow does.

A config with the keys model, data and trainer (such as fuse_digits.yaml) is run as a Lightning module: --trainer takes
any option of Lightning's Trainer then, and --ckpt_path last resumes a run that was interrupted."""

# Fields of the plan that say what becomes of a merge.
AFTERWARDS = ("search", "polish", "correct", "heads", "ensemble")
# Ends the name of a file beside the output, where the trials of a search are until the output is there.
JOURNAL = ".search"
# Defaults that are not the plan's: whoever reads a report wants the reference.
DEFAULTS = {"ensemble": True, "examples": SHOWN_EXAMPLES}


def run(argv: Sequence[str]) -> None:
    """Run the command.

    Raises:
        InputError: checkpoints, options or data that do not fit; nothing has been written then.
    """
    if is_of_lightning(argv):
        from fusionlab.commands import fuse_config  # noqa: PLC0415 - imports all that trains, which takes seconds

        fuse_config.run(argv)
        return
    parser = _parser()
    arguments = parsing.parse(parser, own_data.written_out(argv))
    seed_everything(arguments.seed, verbose=False)
    merging_options.merge_methods(arguments)  # refused before any work, like the matching
    is_auto = arguments.match == AUTO
    first = matching_options.refuse_options(arguments) if is_auto else matching_options.matching_recipe(arguments)
    refuse_anchor(arguments.anchor, len(arguments.ckpts))
    output = expanded(arguments.output)
    trainer = data_options.trainer_options(arguments)
    refuse_existing(output, arguments.overwrite, arguments.resume)
    refuse_unpushable(arguments)
    tell_differences(arguments.ckpts, arguments.names, shares_heads=arguments.heads == "merged")

    polishing = arguments.polish
    if isinstance(polishing, int):
        polishing = PolishOptions(steps=polishing, seed=arguments.seed)
    arguments.search, journal = _searching(arguments)
    _plan(arguments, first, polishing, trainer)
    repeat, held = repeat_config(parser, own_data.written_out(argv)), list[str]()
    choice = fuse_choice.chosen(arguments) if is_auto else None
    if choice is not None:
        _tell_choice(arguments, choice)
    if arguments.match != AUTO:
        recipe = matching_options.matching_recipe(arguments)
        plan, command = _plan(arguments, recipe, polishing, trainer), shlex.join(["fusionlab", "fuse", *argv])
        unmet = fuse_stream.by_parts(arguments, plan, command, repeat, choice)
        if unmet is None:
            push_output(arguments, output / "merged")
            return
        held += unmet
    if arguments.resume:
        raise InputError(
            f"resume goes on with models that are fused a part at a time, without data and by one method; expected no "
            f"--resume{f' ({held[0]})' if held else ''}"
        )
    _in_memory(arguments, argv, polishing, trainer, repeat, held, choice)
    _forget_journal(journal)
    rank_zero_only(push_output)(arguments, output / "merged")


def _in_memory(
    arguments: Namespace,
    argv: Sequence[str],
    polishing: PolishOptions | None,
    trainer: Mapping[str, Any],
    repeat: str,
    held: Sequence[str],
    choice: Choice | None,
) -> None:
    """Fuse whole models; write, and tell what was done and why they were held."""
    output, dtype, seen = expanded(arguments.output), find_dtype(arguments.dtype), None
    module = own_module(arguments, argv)
    found = parsing.read_all(arguments.ckpts, module, arguments.base, arguments.names)
    merging_options.begin_hashes(found, arguments)
    guessed = own_data.fitted(arguments, list(found.values()), "fuse")
    ends = {label: checkpoint.model for label, checkpoint in found.items()}
    if arguments.match == AUTO:
        seen = data_options.inputs(arguments, list(ends.values()), arguments.ckpts)
        # Models with heads of their own have no outputs in common to learn by.
        has_outputs = arguments.heads != "own"
        choice = choose(ends, seen is not None and has_outputs, found, seen, has_outputs and polishing is None)
        _tell_choice(arguments, choice)
    advised = choice if choice is not None else advice_on(read_weights(ends, found))
    recipe, name = matching_options.matching_recipe(arguments), matching_options.matching_name(arguments)
    plan = _plan(arguments, recipe, polishing, trainer)
    models = matching_options.untied(ends, arguments)
    needed = recipe.needs_inputs or arguments.correct or polishing is not None
    inputs = data_options.inputs(arguments, list(models.values()), arguments.ckpts, needed) if seen is None else seen
    refuse_search(plan.search, inputs, list(models.values()))  # before any work
    models, growths = of_one_size(models, inputs, recipe.matches)
    types = common_types(models.values()) if dtype is None else dtype
    kept = list(models.values()) if arguments.heads == "own" else list(models.values())[:1]
    require_space(output, size_of_merge(kept, next(iter(found.values())), types) + REPORT_BYTES)
    modules, told = modules_of_fusion(found, plan, arguments.base)
    measured = data_options.test_data(arguments)
    fused, results = run_experiment(
        models,
        measured,
        plan,
        f"Merging {listing(list(models))}",
        inputs,
        merging_options.given_statistics(arguments),
        merging_options.base_model(arguments, found, module),
    )
    followed = fused.matched[name].recipe if name in fused.matched else recipe
    settings = {
        "command": shlex.join(["fusionlab", "fuse", *argv]),
        "matching": f"{name}{'' if choice is None else f', chosen by {AUTO}'} ({followed})",
        "anchor": results.models[fused.anchor],
        "merge methods": ", ".join(plan.methods),
        "seed": str(arguments.seed),
        **guessed,
    }
    made = {"matching": settings["matching"], "anchor": settings["anchor"], **merging_options.described(arguments)}
    made |= merging_options.found_by_method([] if fused.kept is None else fused.kept.notes)
    made |= {"heads": arguments.heads} if arguments.heads != "merged" else {}
    made |= {"search": fused.search.told} if fused.search is not None else {}
    made |= {"polish": describe(polishing)} if polishing is not None else {}
    made |= {"activations": "corrected"} if arguments.correct else {}
    made |= {f"{label}, grown": growing.described(growth) for label, growth in growths.items()}
    parents = merging_options.parents(found, arguments)
    index = index_of_fusion(fused, results, measured)
    card = merge_card(parents, made, library_of(next(iter(found.values()))), card_table(results), index)
    notes = [advised_note(advised, results), *([f"{growing.told(growths)}."] if growths else []), *results.notes]
    notes = [*notes, *told, *held, *way_back(argv, results, polishing is None)]
    results = replace(results, settings=settings, notes=notes)
    written = as_grown(found, {label: models[label] for label in growths})
    write_fusion(fused, results, written, output, arguments.overwrite, types, card, repeat, modules)


def _searching(arguments: Namespace) -> tuple[SearchOptions | None, Path | None]:
    """The search that the arguments ask for, and the journal where they name none.

    Trials of one process lie beside the output until that is there.

    Raises:
        InputError: a journal that cannot be read, or that several processes would write.
    """
    given: int | SearchOptions | None = arguments.search
    if given is None:
        return None, None
    found, journal = SearchOptions(trials=given, seed=arguments.seed) if isinstance(given, int) else given, None
    is_alone = str(arguments.devices) == "1"
    if found.journal is not None and not is_alone:
        raise InputError(
            f"search journal is {found.journal}, which one process writes, and devices is {arguments.devices}; "
            f"expected --devices 1, or no journal"
        )
    if found.journal is None and is_alone:
        output = expanded(arguments.output)
        journal = output.with_name(f"{output.name}{JOURNAL}")
        found = replace(found, journal=str(journal))
    refuse_journal(found.journal)
    return found, journal


@rank_zero_only
def _forget_journal(journal: Path | None) -> None:
    """Remove the trials that this call put beside an output, which has them itself now."""
    if journal is not None:
        journal.unlink(missing_ok=True)


def _tell_choice(arguments: Namespace, choice: Choice) -> None:
    """Take the matching that advice chose, and say so before the work."""
    arguments.match = choice.match
    printing.progress().print(f"{choice.sentence} --match names another preset.", highlight=False, soft_wrap=True)


def _plan(arguments: Namespace, recipe: Recipe, polishing: PolishOptions | None, trainer: Mapping[str, Any]) -> Plan:
    """The plan that the arguments describe, with this matching."""
    name = matching_options.matching_name(arguments)
    return Plan(
        matchings={} if arguments.match == "none" else {name: recipe},
        methods=merging_options.merge_methods(arguments),
        weights=arguments.weights,
        anchor=arguments.anchor,
        ensemble=arguments.ensemble and arguments.heads == "merged",
        correct=arguments.correct,
        search=arguments.search,
        polish=polishing,
        heads=arguments.heads,
        points=arguments.points if arguments.heads == "merged" else 0,
        examples=arguments.examples,
        plane=arguments.plane,
        trainer=trainer,
        seed=arguments.seed,
        dtype=find_dtype(arguments.dtype),
    )


def _parser() -> ArgumentParser:
    parser = parsing.make_parser("fuse", DESCRIPTION)
    add_fields(parsing.common_group(parser), parsing.CheckpointOptions, ("ckpts", "names"))
    parsing.add_architecture(parser)
    add_example(parser)
    parsing.add_output(parser)
    parsing.add_resume(parser)
    parsing.add_push(parser)
    parsing.add_json(parser)
    add_fields(parser, FusionPlan, ("anchor",))
    matching_options.add_matching(parser, may_be_auto=True)
    merging_options.add_merging(parser)
    data_options.add_inputs(parser)
    words = f"{told(FusionPlan, 'polish')} A number of steps, or options (--polish.steps and so on)."
    steps = {"type": int | PolishOptions | None, "nargs": "?", "const": PolishOptions.steps, "help": words}
    words = f"{told(FusionPlan, 'search')} A number of trials, or options (--search.trials and so on)."
    trials = {"type": int | SearchOptions | None, "nargs": "?", "const": SearchOptions.trials, "help": words}
    defaults = {name: {"default": value} for name, value in DEFAULTS.items()}
    add_fields(parser, FusionPlan, AFTERWARDS, {"search": trials, "polish": steps, **defaults})
    data_options.add_data(parser)
    add_fields(parser.add_argument_group("In the report"), Plan, ("examples", "plane"), defaults)
    return parser
