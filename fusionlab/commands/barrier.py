"""``fusionlab barrier``: loss and accuracy along the line between two models, unmatched and matched."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lightning.pytorch import seed_everything
from lightning.pytorch.utilities import rank_zero_only
from rich.table import Table

from fusionlab import growing, printing
from fusionlab.atomic import atomic_folder, refuse_existing, require_space
from fusionlab.commands import data_options, matching_options, own_data, parsing
from fusionlab.commands.example import add_example, own_module
from fusionlab.commands.grow import of_one_size
from fusionlab.commands.option_groups import add_fields
from fusionlab.evaluation.folder import write
from fusionlab.evaluation.line import refuse_points
from fusionlab.evaluation.results import UNMATCHED, Curve, Results
from fusionlab.evaluation.wording import format_value, metric_label
from fusionlab.experiment import REPORT_BYTES, Plan
from fusionlab.experiment import run as run_experiment
from fusionlab.paths import expanded

DESCRIPTION = """Draw the line between two models: loss and accuracy at evenly spaced points, unmatched and matched.

The barrier is the highest rise of the loss above the straight line between its ends. Points between models with
BatchNorm get running statistics of their own, measured on the training split of --data, or on --probes."""


@dataclass(frozen=True)
class LineOptions:
    """The line between two models.

    Attributes:
        anchor: checkpoint at position 0; the other is matched to it.
        source: checkpoint at position 1.
        correct: whether every unit of a point gets the mean and spread that it has between the two models (REPAIR),
            measured on the inputs that matching sees.
    """

    anchor: str
    source: str
    correct: bool = False


def run(argv: Sequence[str]) -> None:
    """Run the command.

    Raises:
        InputError: checkpoints, options or data that do not fit; nothing has been written then.
    """
    parser = parsing.make_parser("barrier", DESCRIPTION)
    add_fields(parser, LineOptions, ("anchor", "source"), positional=("anchor", "source"))
    parsing.add_names(parser)
    parsing.add_architecture(parser)
    add_example(parser)
    parsing.add_output(parser, required=False)
    parsing.add_json(parser)
    matching_options.add_matching(parser)
    add_fields(parser, LineOptions, ("correct",))
    data_options.add_inputs(parser)
    data_options.add_data(parser, required=True)
    arguments = parsing.parse(parser, own_data.written_out(argv, several=False))
    seed_everything(arguments.seed, verbose=False)
    recipe, name = matching_options.matching_recipe(arguments), matching_options.matching_name(arguments)
    refuse_points(arguments.points, may_be_none=False)
    output = None if arguments.output is None else expanded(arguments.output)
    if output is not None:
        refuse_existing(output, arguments.overwrite)
        require_space(output, REPORT_BYTES)
    trainer = data_options.trainer_options(arguments)

    found = parsing.read_all([arguments.anchor, arguments.source], own_module(arguments, argv), names=arguments.names)
    guessed = own_data.fitted(arguments, list(found.values()), "barrier")
    plan = Plan(
        matchings={} if arguments.match == "none" else {name: recipe},
        correct=arguments.correct,
        points=arguments.points,
        trainer=trainer,
        seed=arguments.seed,
    )
    models = matching_options.untied({label: checkpoint.model for label, checkpoint in found.items()}, arguments)
    inputs = data_options.inputs(
        arguments,
        list(models.values()),
        [arguments.anchor, arguments.source],
        recipe.needs_inputs or arguments.correct,
    )
    models, growths = of_one_size(models, inputs, recipe.matches)
    title = f"From {' to '.join(models)}"
    _, results = run_experiment(models, data_options.test_data(arguments), plan, title, inputs)
    if growths:
        results = replace(results, notes=[f"{growing.told(growths)}.", *results.notes])
        printing.results().print(results.notes[0], highlight=False)
    settings = {"command": shlex.join(["fusionlab", "barrier", *argv]), "seed": str(arguments.seed), **guessed}
    _write(replace(results, settings=settings), output, arguments.overwrite)


@rank_zero_only
def _write(results: Results, output: Path | None, overwrite: bool) -> None:
    """Print the lines, and write the report where one is wanted; one process of several does."""
    console = printing.results()
    for data_set in dict.fromkeys(curve.data_set for curve in results.curves):
        console.print(_table([curve for curve in results.curves if curve.data_set == data_set], data_set))
    if output is not None:
        with atomic_folder(output, overwrite) as temporary:
            write(results, temporary)
        console.print(f"Report: {output / 'report.html'}", highlight=False, soft_wrap=True)
    lines = [asdict(curve) | {"barrier": curve.barrier} for curve in results.curves]
    printing.publish({"lines": lines, "notes": results.notes, "output": None if output is None else str(output)})


def _table(curves: Sequence[Curve], data_set: str) -> Table:
    """Positions down, loss and main metric of each matching across, barriers below."""
    title = f"{data_set}: from {curves[0].anchor} (0) to {curves[0].source} (1)"
    table = Table(title=title, title_justify="left", show_footer=True)
    table.add_column("position", footer="barrier", justify="right")
    for curve in curves:
        label = "unmatched" if curve.matching == UNMATCHED else curve.matching
        table.add_column(f"{label}: loss", footer=f"{curve.barrier:.3f}", justify="right")
        table.add_column(metric_label(curve.metric), justify="right")
    for index, position in enumerate(curves[0].positions):
        cells = ((f"{c.loss[index]:.3f}", format_value(c.metric, c.score[index], unit=True)) for c in curves)
        table.add_row(f"{position:.2f}", *(cell for pair in cells for cell in pair))
    return table
