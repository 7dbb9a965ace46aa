"""``fusionlab match``: write matched twins as ordinary checkpoints."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jsonargparse import ArgumentParser, Namespace
from lightning.pytorch import seed_everything
from lightning.pytorch.utilities import rank_zero_only
from rich.progress import track
from torch import nn

from fusionlab import checkpoints, growing, printing
from fusionlab.atomic import MIB, atomic_file, atomic_folder, refuse_existing, require_space
from fusionlab.checkpoints.card import CARD
from fusionlab.checkpoints.names import short_names
from fusionlab.commands import data_options, matching_options, own_data, parsing
from fusionlab.commands.differences import tell_differences
from fusionlab.commands.example import add_example, own_module
from fusionlab.commands.grow import as_grown, of_one_size
from fusionlab.commands.match_output import (
    ALIGNMENT_SUFFIX,
    MatchTable,
    alignment_file,
    card,
    kept_basis_note,
    types_note,
)
from fusionlab.commands.match_stream import by_parts
from fusionlab.commands.option_groups import add_fields, told
from fusionlab.commands.outside import tell_outside
from fusionlab.commands.pushing import push_output, refuse_unpushable
from fusionlab.commands.repeat import REPEAT, repeat_config
from fusionlab.dtypes import DTYPES, differing, find_dtype, rounded, stored_size, widened
from fusionlab.errors import InputError
from fusionlab.evaluation.distance import parameter_distance
from fusionlab.evaluation.preservation import check_preservation
from fusionlab.growing import Growth
from fusionlab.matching.align import gauged
from fusionlab.matching.align_models import align_models
from fusionlab.matching.options import MEAN
from fusionlab.matching.recipe import Recipe
from fusionlab.matching.team import launched
from fusionlab.matching.workplace import Workplace
from fusionlab.models import aliases, common_blueprint
from fusionlab.paths import expanded
from fusionlab.stages import run as run_stages
from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.trainers import Devices, device_of, quiet_factory

DESCRIPTION = """Match models to an anchor: write a twin of each that computes the same function in the anchor's basis.

The twins are ordinary checkpoints of the same format, for any merge tool. That the function is unchanged is checked
on random inputs before anything is written."""


@dataclass(frozen=True)
class TwinOptions:
    """The checkpoints that are matched, and the type that their twins are written in.

    Attributes:
        sources: checkpoints to match: folders, .ckpt files or hub ids.
        anchor: checkpoint to match them to. It is not changed, but gets a twin of its own where a gauge, or untied
            embeddings, change its weights.
        base: the checkpoint that all were fine-tuned from. It is brought into the twins' basis too, for merge methods
            that need it.
        dtype: type that twins are written in; of each its end model's own if not given.
    """

    sources: Sequence[str]
    anchor: str
    base: str | None = None
    dtype: str | None = None


def run(argv: Sequence[str]) -> None:
    """Run the command.

    Raises:
        InputError: checkpoints or options that do not fit; nothing has been written then.
    """
    parser = _parser()
    given = own_data.written_out(argv, several=False)
    arguments, repeat = parsing.parse(parser, given), repeat_config(parser, given)
    seed_everything(arguments.seed, verbose=False)
    recipe = matching_options.matching_recipe(arguments)
    if getattr(recipe.options, "towards", None) == MEAN:
        raise InputError(
            "towards is 'mean', and match brings each model to the anchor alone; expected fuse, which matches all at "
            "once, or towards 'anchor'"
        )
    output = expanded(arguments.output)
    refuse_existing(output, arguments.overwrite, arguments.resume)
    # Several twins lie in a folder.
    is_one = len(arguments.sources) == 1 and not recipe.gauge and not arguments.untie
    refuse_unpushable(arguments, arguments.sources[0] if is_one else None)
    rank_zero_only(tell_differences)([*arguments.sources, arguments.anchor], arguments.names, is_merged=False)
    device = device_of(arguments.accelerator)
    with launched() as team:
        if team.size > 1 and recipe.needs_inputs:
            raise InputError(
                f"{team.size} processes match by weights, and this matching looks at inputs ({recipe}); expected one "
                f"process, or fuse, which shares inputs under a Trainer"
            )
        if (notes := by_parts(arguments, recipe, repeat, Workplace(device, team))) is not None:
            _in_memory(arguments, argv, recipe, repeat, notes, Workplace(device, team))
    rank_zero_only(push_output)(arguments, output)


def _in_memory(
    arguments: Namespace, argv: Sequence[str], recipe: Recipe, repeat: str, notes: list[str], place: Workplace
) -> None:
    """Match whole models; write, and tell what was done and what is to be known."""
    output, dtype = expanded(arguments.output), find_dtype(arguments.dtype)
    base_path = [] if arguments.base is None else [arguments.base]
    paths = (*arguments.sources, arguments.anchor, *base_path)
    names, module = short_names(paths, arguments.names), own_module(arguments, argv)
    found = {name: checkpoints.read(path, module, arguments.base) for name, path in zip(names, paths, strict=True)}
    own_data.fitted(arguments, [found[names[len(arguments.sources)]]], "match")
    source_names, anchor_name = names[: len(arguments.sources)], names[len(arguments.sources)]
    base_name = names[-1] if base_path else None
    models, growths = _prepared(found, arguments, recipe, base_name)
    found = as_grown(found, {name: growth.model for name, growth in growths.items()})
    blueprint = common_blueprint(models)
    notes += types_note(differing({name: checkpoint.model for name, checkpoint in found.items()}), dtype)
    notes += [f"{growing.told(growths)}."] if growths else []
    recipe.options.select(blueprint)

    table = MatchTable(anchor_name, bool(recipe.gauge))
    moves_anchor = bool(recipe.gauge) or arguments.untie or anchor_name in growths
    written = [models[name] for name in (names if moves_anchor else source_names)]
    require_space(output, sum(stored_size(model, dtype) for model in written) + MIB)
    twins: dict[str, tuple[checkpoints.Checkpoint, nn.Module, Alignment]] = {}
    recipes: dict[str, Recipe] = {}
    for name in track(source_names, "matching", transient=not printing.is_verbose(), console=printing.progress()):
        start = time.perf_counter()
        pair = [models[name], models[anchor_name]]
        inputs = data_options.inputs(arguments, pair, [arguments.anchor], recipe.needs_inputs)
        aligning = align_models(pair, blueprint, recipe, 1, inputs, place=place)
        factory = quiet_factory({"accelerator": arguments.accelerator, "devices": 1})
        (alignment, of_anchor), followed = run_stages(aligning, factory)
        recipes[name] = followed
        twin, anchor_twin = (
            rounded(place.twin(one, model), dtype) for one, model in zip((alignment, of_anchor), pair, strict=True)
        )
        seconds = time.perf_counter() - start
        kept = check_preservation(models[name], twin, alignment, arguments.seed)
        if moves_anchor:
            check_preservation(models[anchor_name], anchor_twin, of_anchor, arguments.seed)
        distances = _distances(pair, [twin, anchor_twin], blueprint, recipe)
        table.add(name, distances, kept.stored, seconds)
        twins[name] = (found[name], twin, alignment)
        if moves_anchor:
            twins[anchor_name] = (found[anchor_name], anchor_twin, of_anchor)
            if base_name is not None:
                base_twin = rounded(place.twin(of_anchor, models[base_name]), dtype)
                check_preservation(models[base_name], base_twin, of_anchor, arguments.seed)
                twins[base_name] = (found[base_name], base_twin, of_anchor)
    cards = {
        name: card(name, source, anchor_name, recipes.get(name, followed), arguments.seed, growths.get(name))
        for name, (source, _, _) in twins.items()
    }
    if base_name is not None and not moves_anchor:
        notes.append(kept_basis_note(anchor_name, base_name))
    if place.team.rank == 0:
        _write(twins, output, arguments.overwrite, dtype, cards, repeat)
        table.tell(notes, output)


def _prepared(
    found: Mapping[str, checkpoints.Checkpoint], arguments: Namespace, recipe: Recipe, base: str | None
) -> tuple[dict[str, nn.Module], dict[str, Growth[nn.Module]]]:
    """The models that are matched, of one size and in the type that is asked for, and the growths of those that grew.

    Args:
        found: their checkpoints, by name.
        arguments: of the command.
        recipe: that they describe.
        base: name of the base model, if there is one.

    Raises:
        InputError: sizes that cannot become one, or a base model of models of different sizes.
    """
    models = matching_options.untied({name: checkpoint.model for name, checkpoint in found.items()}, arguments)
    growths: dict[str, Growth[nn.Module]] = {}
    if growing.differ_in_size(list(models.values())):
        if base is not None:
            raise InputError(
                f"the end models and {base} are of different sizes, which fine-tunes of one base are not; expected "
                f"models of one size with --base, or no --base"
            )
        inputs = data_options.inputs(arguments, list(models.values()), [arguments.anchor], recipe.needs_inputs)
        models, growths = of_one_size(models, inputs, recipe.matches)
    dtype = find_dtype(arguments.dtype)
    if dtype is not None:
        models = {name: widened({name: model}, dtype)[name] for name, model in models.items()}
    return models, growths


def _parser() -> ArgumentParser:
    parser = parsing.make_parser("match", DESCRIPTION)
    types = {"help": f"{told(TwinOptions, 'dtype')} Types: {', '.join(DTYPES)}."}
    add_fields(parser, TwinOptions, changes={"dtype": types}, positional=("sources",))
    parsing.add_names(parser)
    parsing.add_architecture(parser)
    add_example(parser)
    parsing.add_output(parser)
    parsing.add_resume(parser)
    parsing.add_push(parser)
    parsing.add_json(parser)
    matching_options.add_matching(parser)
    add_fields(parser.add_argument_group("Devices"), Devices, ("accelerator",))
    data_options.add_inputs(parser)
    return parser


def _write(
    twins: Mapping[str, tuple[checkpoints.Checkpoint, nn.Module, Alignment]],
    output: Path,
    overwrite: bool,
    dtype: torch.dtype | None,
    cards: Mapping[str, str],
    repeat: str,
) -> None:
    """Write one twin as `output` itself, several into it under their names; each with its alignment."""
    tell_outside(source for source, _, _ in twins.values())
    if len(twins) == 1:
        ((name, (source, twin, alignment)),) = twins.items()
        if source.is_file(output):
            with atomic_file(output.with_suffix(ALIGNMENT_SUFFIX), overwrite) as beside:
                alignment.save(beside)
                source.write(twin, output, overwrite, dtype)
            return
        with atomic_folder(output, overwrite) as temporary:
            source.write(twin, temporary, True, dtype, {CARD: cards[name], REPEAT: repeat})
            alignment.save(alignment_file(temporary, is_alone=True))
        return
    with atomic_folder(output, overwrite) as temporary:
        (temporary / REPEAT).write_text(repeat, encoding="utf-8")
        for name, (source, twin, alignment) in twins.items():
            place = temporary / source.entry(name)
            source.write(twin, place, types=dtype, texts={CARD: cards[name]})
            alignment.save(alignment_file(place, is_alone=False))


def _distances(
    pair: Sequence[nn.Module], twins: Sequence[nn.Module], blueprint: Blueprint, recipe: Recipe
) -> list[float]:
    """Distances of a model to the anchor: as they come, in the recipe's gauge if it has one, and matched."""
    states = [model.state_dict() for model in pair]
    stages = [states, [twin.state_dict() for twin in twins]]
    if recipe.gauge:
        _, gauges = gauged(states, blueprint, recipe.options)
        stages.insert(1, [gauge.apply(state) for gauge, state in zip(gauges, states, strict=True)])
    # What is tied is one parameter.
    tied = aliases(states[0])
    stages = [[{n: tensor for n, tensor in state.items() if n not in tied} for state in stage] for stage in stages]
    return [parameter_distance(*stage) for stage in stages]
