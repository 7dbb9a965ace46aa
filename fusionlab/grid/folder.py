"""The results of a grid as a folder: tables, the report, TensorBoard, and every number as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from fusionlab.atomic import replaced_entries
from fusionlab.data.contract import described
from fusionlab.data.overlap import overlap
from fusionlab.evaluation.comparison import Comparison, Level, Measured, compare
from fusionlab.evaluation.distances import Distance
from fusionlab.evaluation.folder import write
from fusionlab.evaluation.results import END_MODEL, Curve, Results, Row
from fusionlab.evaluation.wording import listing
from fusionlab.grid import tables
from fusionlab.grid.cells import Finished
from fusionlab.grid.design import Cell, Grid
from fusionlab.grid.summary import divergences, headline_metric, summarize

# Gives what each test example added in some cells.
Examples = Callable[[Iterable[Cell]], list[Measured]]


def write_results(
    finished: Sequence[Finished], grid: Grid, folder: Path, title: str, command: str, examples: Examples
) -> None:
    """Write the summary as Markdown, LaTeX and CSV, all results as JSON and CSV, report, plots and TensorBoard logs.

    Args:
        finished: all cells.
        grid: what they belong to.
        folder: the grid's; older tables in it are replaced.
        title: of the report.
        command: that made them.
        examples: gives what each test example added in some cells.
    """
    lines, metric = summarize(finished, grid.identity), headline_metric(finished)
    comparisons, levels, unpaired = compare_groups(finished, examples)
    types = dict.fromkeys(done.note for done in finished if done.note)
    told = [f"{done.cell.name}: {sentence}" for done in finished for sentence in done.told]
    notes = [*types, *shared_texts(grid), *told, *failures(finished), *unpaired]
    remarks = "".join(f"- {note}\n" for note in notes)
    markdown = (f"# {title}", tables.markdown(lines, metric), tables.markdown_details(finished, metric), remarks)
    texts = (
        ("summary.md", "\n".join(part for part in markdown if part)),
        ("summary.tex", tables.latex(lines, metric)),
        ("summary.csv", tables.comma_separated(lines)),
    )
    settings = {
        "command": command,
        "groups": "; ".join(" + ".join(group) for group in grid.groups),
        "seeds": ", ".join(map(str, grid.seeds)),
        "methods": ", ".join(grid.methods),
        "matchings": "; ".join(["none", *(f"{name} ({recipe})" for name, recipe in grid.matchings.items())]),
        "heads": grid.heads,
        "protocol": grid.protocol,
        "training samples of each model that merging saw": _count(grid.samples),
        "samples of each test set that were measured on": _count(grid.test_samples),
    }
    if len(grid.seeds) > 1:
        notes = ["Scores and distances are means over the seeds; lines are of the first seed.", *notes]
    rows, distances = _over_seeds(finished), _distances(finished)
    several = len({done.cell.models for done in finished if done.cell.is_merge}) > 1
    overall = [gain for line in lines for gain in line.gains.values() if gain is not None] if several else []
    names, curves = tuple(grid.end_models), _curves(finished)
    results = Results(title, names, rows, curves, distances, settings, notes, comparisons, levels, overall)
    # Older results stay until all new ones are complete.
    with replaced_entries(folder) as temporary:
        for name, text in texts:
            (temporary / name).write_text(text, encoding="utf-8")
        write(results, temporary)


def compare_groups(finished: Sequence[Finished], examples: Examples) -> tuple[list[Comparison], list[Level], list[str]]:
    """The effect of matching in each group by itself, and of merging, on the same test examples; means over its seeds.

    Args:
        finished: all cells.
        examples: gives what each test example added in some cells.

    Returns:
        Comparisons, levels, and a sentence for each group of which the examples cannot be paired.
    """
    groups: dict[tuple[str, ...], list[Cell]] = {}
    ends: dict[tuple[str, int], Cell] = {}
    for done in finished:
        if done.error is None:
            groups.setdefault(done.cell.models, []).append(done.cell)
            if done.cell.method == END_MODEL:
                ends[done.cell.models[0], done.cell.seed] = done.cell
    comparisons: list[Comparison] = []
    levels: list[Level] = []
    notes: list[str] = []
    for models, cells in groups.items():
        seeds = dict.fromkeys(cell.seed for cell in cells)
        places = [(name, seed) for name in models for seed in seeds] if len(models) > 1 else []
        members = [ends[place] for place in places if place in ends]
        try:
            found = _compared(models, cells, members, examples)
        except ValueError as error:
            notes.append(
                f"{' + '.join(models)}: {error}; its test data changed between two starts. Remove its files from "
                f"cells/ and start again."
            )
            continue
        comparisons += found[0]
        levels += [level for level in found[1] if level.models == models]
    return comparisons, levels, notes


def _compared(
    models: tuple[str, ...], cells: Sequence[Cell], members: Sequence[Cell], examples: Examples
) -> tuple[list[Comparison], list[Level]]:
    """Comparisons and levels of one group; with its end models, unless other examples were left of these.

    Raises:
        ValueError: the group's own examples cannot be paired.
    """
    # One group at a time: the examples of all of them may be more than memory holds.
    try:
        return compare(_in_a_group(examples([*cells, *members]), models))
    except ValueError:
        return compare(examples(cells))


def _in_a_group(measured: Iterable[Measured], models: tuple[str, ...]) -> list[Measured]:
    """Its merges and end models on the test sets of the merges, in the domains that those have for the group."""
    measured = list(measured)
    domains = {one.data_set: one.domain for one in measured if one.models == models}
    return [replace(one, domain=domains[one.data_set]) for one in measured if one.data_set in domains]


def failures(finished: Sequence[Finished]) -> list[str]:
    """A sentence for each test set that could not be had, each reason that cells failed for, and each that diverged."""
    cells: dict[str, list[str]] = {}
    for done in finished:
        if done.error is not None:
            cells.setdefault(done.error, []).append(done.cell.name)
    absent = {name: reason for done in finished for name, reason in done.missing.items()}
    return [
        *(f"Not measured on {name}: {reason}" for name, reason in absent.items()),
        *(
            f"Failed: {names[0]}{f' and {len(names) - 1} more cells' if len(names) > 1 else ''}: {error}"
            for error, names in cells.items()
        ),
        *(f"Diverged: {done.cell.name}: {listing(found)}." for done in finished if (found := divergences(done))),
    ]


def shared_texts(grid: Grid) -> list[str]:
    """A sentence for each end model and test set that share texts: scores there say nothing about new texts.

    Data that cannot be read are left out.
    """
    tests = {grid.signature(module): module for module in [e.data for e in grid.end_models.values()]}
    tests |= {grid.signature(module): module for module in grid.out_of_domain}
    # Each text is read once: there are as many comparisons as end models times test sets.
    texts = [(described(module).name, _texts(module, "test")) for module in tests.values()]
    found = []
    for name, end in grid.end_models.items():
        train = _texts(end.data, "train")
        for tested, test in texts:
            shared = overlap(train, test)
            if shared.count:
                found.append(
                    f"{shared.count} of {shared.total} test texts of {tested} ({100 * shared.share:.1f} %) are "
                    f"training texts of {name} too."
                )
    return found


def _texts(data: object, split: str) -> list[str]:
    try:
        return list(described(data).texts(split))
    except Exception:
        # Why data cannot be read stands with the cells that failed for it.
        return []


def _count(samples: int | None) -> str:
    return "all" if samples is None else str(samples)


def _over_seeds(finished: Sequence[Finished]) -> list[Row]:
    """The mean over seeds of every score; a seed whose cell failed is missing in it."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for done in finished:
        for row in done.rows:
            key = (row.models, row.method, row.matching, row.data_set, row.domain, row.metric)
            found.setdefault(key, []).append(row)
    return [
        replace(rows[0], value=fmean(row.value for row in rows), seconds=_mean_seconds(rows)) for rows in found.values()
    ]


def _mean_seconds(rows: Sequence[Row]) -> float | None:
    known = [row.seconds for row in rows if row.seconds is not None]
    return fmean(known) if known else None


def _curves(finished: Sequence[Finished]) -> list[Curve]:
    return [curve for done in finished for curve in done.curves]


def _distances(finished: Sequence[Finished]) -> list[Distance]:
    """Means over seeds; a model that is in several groups with one anchor counts as one."""
    found: dict[tuple[Any, ...], list[Distance]] = {}
    for done in finished:
        for one in done.distances:
            found.setdefault((one.anchor, one.source, one.matching, one.role, one.layer), []).append(one)
    return [
        replace(
            parts[0],
            before=fmean(p.before for p in parts),
            after=fmean(p.after for p in parts),
            as_given=None if parts[0].as_given is None else fmean(p.given for p in parts),
        )
        for parts in found.values()
    ]
