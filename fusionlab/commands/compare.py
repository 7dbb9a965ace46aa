"""``fusionlab compare``: a grid of merges, cell by cell, in one table."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console
from rich.table import Table

from fusionlab import printing
from fusionlab.atomic import require_space, try_to_write
from fusionlab.commands import data_options, parsing
from fusionlab.commands.end_models import EndModelOptions, fresh_task, train_end_model
from fusionlab.commands.option_groups import add_fields, told, told_all
from fusionlab.errors import InputError
from fusionlab.experiment import REPORT_BYTES
from fusionlab.fusion import FusionPlan
from fusionlab.grid import tables
from fusionlab.grid.cells import Finished
from fusionlab.grid.design import Grid, make_groups
from fusionlab.grid.estimate import estimate
from fusionlab.grid.folder import failures, write_results
from fusionlab.grid.on_ray import OnRay
from fusionlab.grid.places import Here, Place
from fusionlab.grid.runner import GridRunner
from fusionlab.grid.summary import headline_metric, summarize
from fusionlab.matching.recipe import recipe_of
from fusionlab.merging import find_method
from fusionlab.paths import expanded

# About what a cell and its test examples take. End models that are trained on the way and statistics take more, and
# are checked for when they are written.
CELL_BYTES = 64 * 1024
# Below times that are told before there is a finished cell to tell them by.
UNCOUNTED = (
    "At least: by one batch of each set. Matching, statistics and what each cell starts with are not counted; of small "
    "models they are most of it."
)

# Fields of a grid that a config has; what it may leave out, and how it writes what Python has as objects.
GRID = tuple(field.name for field in fields(Grid) if field.name != "heads")
DEFAULTS = {"groups": "pairs", "methods": ["simple"], "matchings": ["paper"]}
WRITTEN = {
    "end_models": dict[str, EndModelOptions],
    "groups": str | list[list[str]],
    "methods": list[str] | dict[str, dict[str, Any]],
    "matchings": list[str] | dict[str, dict[str, Any]],
    "multitask": EndModelOptions | None,
}

DESCRIPTION = """Compare merges of many end models: groups, methods, matchings and seeds, in and out of domain.

Every cell of the grid is written as it finishes, so that a second start goes on where the first one stopped; a cell
that fails is told at the end and does not stop the others."""
FLAGS = {"dry_run": {"flags": ("--dry-run",)}}


@dataclass(frozen=True)
class RunOptions:
    """Options of a run of a grid.

    Attributes:
        output: folder to write, or to go on in.
        title: title of the report.
        dry_run: whether only the plan is printed: how many cells there are, how many of them are to do, and about how
            long they take.
        on: where the cells are made, in place of this process: ``ray`` (``pip install 'fusionlab[ray]'``), or
            ``ray://HOST:PORT`` of a cluster; the folder of the grid is on a file system that all of its nodes share.
        cpus: processors that each cell takes on Ray; one if None.
    """

    output: str
    title: str | None = None
    dry_run: bool = False
    on: str | None = None
    cpus: int | None = None


def run(argv: Sequence[str]) -> None:
    """Run the command.

    Raises:
        InputError: a wrong config; or every cell failed.
        Exception: every cell failed, and some by an error of fusionlab's own: the first of these.
    """
    parser = make_parser("compare", DESCRIPTION)
    arguments = parsing.parse(parser, argv)
    place = make_place(arguments)
    grid = make_grid(arguments)
    trainer = data_options.trainer_options(arguments)
    runner = GridRunner(grid, expanded(arguments.output), train_end_model, trainer)
    console = printing.results()
    if arguments.dry_run:
        console.print(plan_table(runner))
        return
    try_to_write(runner.folder / "cells")
    title = arguments.title or f"{len(grid.groups)} groups of {len(grid.end_models)} end models"
    run_grid(runner, title, shlex.join(["fusionlab", "compare", *argv]), console, place)


def make_parser(name: str, description: str) -> ArgumentParser:
    """A parser with all that describes a grid and where it runs."""
    parser = parsing.make_parser(name, description, seed=False)
    changes: dict[str, dict[str, Any]] = {field: {"type": kind} for field, kind in WRITTEN.items()}
    for field, default in DEFAULTS.items():
        changes[field]["default"] = default
    changes["end_models"]["help"] = f"{told(Grid, 'end_models')} Of each: {told_all(EndModelOptions)}"
    add_fields(parser, Grid, GRID, changes)
    add_fields(parser, FusionPlan, ("heads",))
    add_fields(parser, RunOptions, changes=FLAGS)
    data_options.add_devices(parser)
    return parser


def run_grid(runner: GridRunner, title: str, command: str, console: Console, place: Place) -> None:
    """Make the missing cells of a grid, then write and print its tables.

    Args:
        runner: of the grid.
        title: of the report.
        command: that makes them.
        console: to print on.
        place: where the cells are made.

    Raises:
        InputError: every cell failed, the place can make none, or the disk has too little space for what they write.
        Exception: every cell failed, and some by an error of fusionlab's own: the first of these.
    """
    order = {cell: number for number, cell in enumerate(runner.grid.cells())}
    total = len(order)
    missing = sum(done is None for _, done in runner.state())
    require_space(runner.folder / "cells", missing * CELL_BYTES + REPORT_BYTES)
    finished: list[Finished] = []
    with closing(runner.run(place)) as made:
        for done in made:
            finished.append(done)
            outcome = f"{done.seconds:.1f} s" if done.error is None else f"failed: {done.error}"
            console.print(f"{len(finished)}/{total}  {done.cell.name}: {outcome}", highlight=False, soft_wrap=True)
            for sentence in done.told:
                console.print(f"  {sentence}", style="dim", highlight=False, soft_wrap=True)
    finished.sort(key=lambda done: order[done.cell])
    failed = [done for done in finished if done.error is not None]
    if len(failed) == total:
        for sentence in failures(finished):
            console.print(sentence, style="red", highlight=False, soft_wrap=True)
        if runner.fault is not None:
            raise runner.fault
        raise InputError(f"every cell failed, the first with: {failed[0].error}")
    write_results(finished, runner.grid, runner.folder, title, command, runner.examples)
    console.print()
    console.print(tables.console(summarize(finished, runner.grid.identity), headline_metric(finished), title))
    for note in dict.fromkeys(done.note for done in finished if done.note):
        console.print(note, style="dim", highlight=False, soft_wrap=True)
    for sentence in failures(finished):
        console.print(sentence, style="red", highlight=False, soft_wrap=True)
    if failed:
        console.print("A second start tries the failed cells again.", style="red")
    console.print(f"Report: {runner.folder / 'report.html'}", highlight=False, soft_wrap=True)


def make_place(arguments: Namespace) -> Place:
    """The place that the arguments name.

    Raises:
        InputError: another word than those there are, processors of no place, or what it needs is not installed.
    """
    if arguments.on is None:
        if arguments.cpus is not None:
            raise InputError(f"cpus is {arguments.cpus}, and cells are made in this process; expected --on with --cpus")
        return Here()
    return OnRay(arguments.on, 1 if arguments.cpus is None else arguments.cpus, arguments.accelerator)


def make_grid(arguments: Namespace) -> Grid:
    """The grid that the arguments describe.

    Raises:
        InputError: names, methods or matchings that do not exist.
    """
    methods = _by_name(arguments.methods)
    for name, hyperparameters in methods.items():
        find_method(name).requires(**hyperparameters)
    ends = {name: options.end_model(name) for name, options in arguments.end_models.items()}
    groups = make_groups(list(arguments.end_models), arguments.groups)
    _refuse_for_all(methods, {len(group) for group in groups})
    return Grid(
        ends,
        groups,
        methods,
        {name: recipe_of(name, options) for name, options in _by_name(arguments.matchings).items() if name != "none"},
        tuple(arguments.seeds),
        tuple(arguments.out_of_domain),
        arguments.ensemble,
        None if arguments.multitask is None else arguments.multitask.multitask_model(ends),
        arguments.samples,
        arguments.test_samples,
        arguments.points,
        arguments.heads,
        arguments.base,
        arguments.protocol,
    )


def _refuse_for_all(methods: Mapping[str, Mapping[str, Any]], sizes: Collection[int]) -> None:
    """Refuse what no group of any of some sizes could be merged by; what some could fails in the others' cells."""
    for name, hyperparameters in methods.items():
        refusals = []
        for size in sorted(sizes):
            try:
                find_method(name).check([1 / size] * size, hyperparameters)
            except InputError as error:
                refusals.append(error)
        if refusals and len(refusals) == len(sizes):
            raise refusals[0]


def plan_table(runner: GridRunner) -> Table:
    """A table of the cells of a run: how many of each kind, how many are missing, and about how long those take."""
    state = runner.state()
    table = Table(title=f"{len(state)} cells in {runner.folder}", title_justify="left", show_footer=True)
    if all(done is None for _, done in state):
        table.caption = UNCOUNTED
        table.caption_justify = "left"
    expected = estimate(runner, state, fresh_task)
    seconds = [line.seconds for line in expected]
    total = "unknown" if any(s is None for s in seconds) else _minutes(sum(s for s in seconds if s is not None))
    left = sum(line.missing for line in expected)
    table.add_column("method", footer="all")
    table.add_column("matching")
    table.add_column("cells", justify="right", footer=str(len(state)))
    table.add_column("to do", justify="right", footer=str(left))
    table.add_column("estimated time", justify="right", footer=total)
    for line in expected:
        time = "unknown" if line.seconds is None else _minutes(line.seconds)
        table.add_row(line.method, line.matching, str(line.cells), str(line.missing), time)
    return table


def _by_name(value: Sequence[str] | Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    if isinstance(value, Mapping):
        return {name: dict(options or {}) for name, options in value.items()}
    return {name: {} for name in value}


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
