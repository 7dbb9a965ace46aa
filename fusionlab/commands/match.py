"""``fusionlab match``: write matched twins as ordinary checkpoints."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lightning.pytorch import seed_everything
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn

from fusionlab import checkpoints
from fusionlab.atomic import atomic_file, atomic_folder, refuse_existing
from fusionlab.commands import data_options, matching_options, parsing
from fusionlab.evaluation.distance import State, parameter_distance
from fusionlab.evaluation.preservation import check_preservation
from fusionlab.matching.align import align_states
from fusionlab.matching.options import MatchOptions
from fusionlab.matching.recipe import align_models
from fusionlab.models import common_blueprint
from fusionlab.symmetry import Alignment, Blueprint

DESCRIPTION = """Match models to an anchor: write a twin of each that computes the same function in the anchor's basis.

The twins are ordinary checkpoints of the same format, for any merge tool. That the function is unchanged is checked
on random inputs before anything is written."""

ALIGNMENT_SUFFIX = ".alignment.safetensors"


def run(argv: Sequence[str]) -> None:
    """Run the command.

    Raises:
        InputError: checkpoints or options that do not fit; nothing has been written then.
    """
    parser = parsing.make_parser("match", DESCRIPTION)
    parser.add_argument("sources", nargs="+", type=str, help="Checkpoints to match: folders, .ckpt files or hub ids.")
    parser.add_argument("--anchor", type=str, required=True, help="Checkpoint to match them to; it is not changed.")
    parsing.add_output(parser)
    matching_options.add_matching(parser)
    data_options.add_inputs(parser)
    arguments = parsing.parse(parser, argv)
    seed_everything(arguments.seed, verbose=False)
    recipe = matching_options.matching_recipe(arguments)
    options = recipe.weights
    output = Path(arguments.output)
    refuse_existing(output, arguments.overwrite)

    *source_names, anchor_name = parsing.short_names([*arguments.sources, arguments.anchor])
    anchor = checkpoints.read(arguments.anchor)
    sources = [checkpoints.read(path) for path in arguments.sources]
    named = {name: source.model for name, source in zip(source_names, sources, strict=True)}
    models = matching_options.untied({**named, anchor_name: anchor.model}, arguments)
    blueprint = common_blueprint(models)
    options.select(blueprint)

    table = Table(title=f"Distance to {anchor_name}", title_justify="left")
    table.add_column("model", overflow="fold")
    without = ["after, no gauge"] if options.gauge else []
    for heading in ("before", "after", "change", *without, "logits differ by", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    goal = models[anchor_name].state_dict()
    moves_anchor = bool(options.gauge) or arguments.untie
    twins: dict[str, tuple[checkpoints.Checkpoint, nn.Module, Alignment]] = {}
    for name, source in track(list(zip(source_names, sources, strict=True)), "matching", transient=True):
        start = time.perf_counter()
        states = [models[name].state_dict(), goal]
        pair = [models[name], models[anchor_name]]
        inputs = data_options.inputs(arguments, pair, [arguments.anchor], recipe.needs_inputs)
        alignment, of_anchor = align_models(pair, blueprint, recipe, 1, inputs)
        twin, anchor_twin = alignment.apply(models[name]), of_anchor.apply(models[anchor_name])
        seconds = time.perf_counter() - start
        kept = check_preservation(models[name], twin, alignment, arguments.seed)
        if moves_anchor:
            check_preservation(models[anchor_name], anchor_twin, of_anchor, arguments.seed)
        before = parameter_distance(states[0], goal)
        after = parameter_distance(twin.state_dict(), anchor_twin.state_dict())
        plain = "" if not options.gauge else f"{_distance_without_gauge(states, blueprint, options):.4f}"
        change = f"{100 * (after / before - 1):+.2f} %" if before else "none"
        table.add_row(
            name,
            f"{before:.4f}",
            f"{after:.4f}",
            change,
            *([plain] if plain else []),
            _difference(kept.stored),
            f"{seconds:.2f}",
        )
        twins[name] = (source, twin, alignment)
        if moves_anchor:
            twins[anchor_name] = (anchor, anchor_twin, of_anchor)
    _write(twins, output, arguments.overwrite)
    console = Console()
    console.print(table)
    console.print(
        "Euclidean distance of all parameters before and after; logits on random inputs, relative to the largest.",
        style="dim",
    )
    console.print(f"Written to {output}", highlight=False, soft_wrap=True)


def _write(
    twins: Mapping[str, tuple[checkpoints.Checkpoint, nn.Module, Alignment]], output: Path, overwrite: bool
) -> None:
    """Write one twin as `output` itself, several into it under their names; each with its alignment."""
    if len(twins) == 1:
        ((source, twin, alignment),) = twins.values()
        if source.format == "lightning":
            with atomic_file(output.with_suffix(ALIGNMENT_SUFFIX), overwrite) as beside:
                alignment.save(beside)
                source.write(twin, output, overwrite)
            return
        with atomic_folder(output, overwrite) as temporary:
            source.write(twin, temporary, overwrite=True)
            alignment.save(temporary / f"fusionlab{ALIGNMENT_SUFFIX}")
        return
    with atomic_folder(output, overwrite) as temporary:
        for name, (source, twin, alignment) in twins.items():
            place = temporary / name
            source.write(twin, place)
            alignment.save(place.with_name(f"{place.name}{ALIGNMENT_SUFFIX}"))


def _distance_without_gauge(states: Sequence[State], blueprint: Blueprint, options: MatchOptions) -> float:
    """The distance that the same matching leaves when no model is brought into a gauge first."""
    alignment, _ = align_states(states, blueprint, replace(options, gauge=()), anchor=1)
    return parameter_distance(alignment.apply(states[0]), states[1])


def _difference(value: float) -> str:
    return "0" if value == 0 else f"{value:.1e}"
