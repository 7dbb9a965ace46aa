"""``fusionlab fuse``: match, merge, measure and report; the main job."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lightning.pytorch import seed_everything
from rich.console import Console

from fusionlab.atomic import atomic_folder, refuse_existing
from fusionlab.commands import parsing
from fusionlab.evaluation.report import console_table
from fusionlab.experiment import Plan, write
from fusionlab.experiment import run as run_experiment
from fusionlab.matching.options import describe

DESCRIPTION = """Match end models, merge them and show whether it helped.

End models, the unmatched merge and the matched merge are measured side by side; the matched merge, tables, plots,
TensorBoard logs and report.html go into the output folder."""


def run(argv: Sequence[str]) -> None:
    """Run the command.

    Raises:
        InputError: checkpoints, options or data that do not fit; nothing has been written then.
    """
    parser = parsing.make_parser("fuse", DESCRIPTION)
    parser.add_argument(
        "--ckpts", nargs="+", type=str, required=True, help="End models: folders, .ckpt files or hub ids."
    )
    parsing.add_output(parser)
    parsing.add_anchor(parser)
    parsing.add_matching(parser)
    parsing.add_merging(parser)
    parsing.add_data(parser)
    arguments = parsing.parse(parser, argv)
    seed_everything(arguments.seed, verbose=False)
    options, name = parsing.matching_options(arguments), parsing.matching_name(arguments)
    output = Path(arguments.output)
    refuse_existing(output, arguments.overwrite)

    found = parsing.read_all(arguments.ckpts)
    plan = Plan(
        matchings={} if arguments.match == "none" else {name: options},
        method=arguments.method,
        hyperparameters=arguments.hyperparameters,
        weights=arguments.weights,
        anchor=arguments.anchor,
        points=arguments.points,
        trainer=parsing.trainer_options(arguments),
    )
    models = parsing.untied({label: checkpoint.model for label, checkpoint in found.items()}, arguments)
    fused, results = run_experiment(models, parsing.test_data(arguments), plan, f"Merging {listing(list(models))}")
    settings = {
        "command": shlex.join(["fusionlab", "fuse", *argv]),
        "matching": f"{name} ({describe(options)})",
        "anchor": results.models[fused.anchor],
        "merge method": arguments.method,
        "seed": str(arguments.seed),
    }
    results = replace(results, settings=settings)
    with atomic_folder(output, arguments.overwrite) as temporary:
        first = next(iter(found.values()))
        first.write(fused.candidates[-1].model, temporary / f"merged{'.ckpt' if first.format == 'lightning' else ''}")
        write(results, temporary)
    console = Console()
    if results.rows or results.distances:
        console.print(console_table(results))
    for note in results.notes:
        console.print(note, style="dim")
    for label, matched in fused.matched.items():
        worst = max(check.stored for check in matched.preservation)
        console.print(
            f"{label}: matching changed no model's logits by more than {worst:.1e} of the largest", style="dim"
        )
    console.print(f"Report: {output / 'report.html'}", highlight=False, soft_wrap=True)


def listing(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join([*([", ".join(names[:-1])] if names[1:] else []), names[-1]])
