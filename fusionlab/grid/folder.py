"""The results of a grid as a folder: tables, the report, TensorBoard, and every number as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from fusionlab.atomic import replaced_entries
from fusionlab.data.overlap import overlap
from fusionlab.evaluation.distances import Distance
from fusionlab.evaluation.report import write_report
from fusionlab.evaluation.results import Curve, Results, Row
from fusionlab.evaluation.tensorboard import write_tensorboard
from fusionlab.grid import tables
from fusionlab.grid.cells import Finished
from fusionlab.grid.design import Grid
from fusionlab.grid.summary import headline_metric, summarize


def write_results(finished: Sequence[Finished], grid: Grid, folder: Path, title: str, command: str) -> None:
    """Write the summary as Markdown, LaTeX and CSV, all results as JSON and CSV, report, plots and TensorBoard logs.

    Args:
        finished: all cells.
        grid: what they belong to.
        folder: the grid's; older tables in it are replaced.
        title: of the report.
        command: that made them.
    """
    lines, metric = summarize(finished), headline_metric(finished)
    notes = [*shared_texts(grid), *failures(finished)]
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
    results = Results(title, tuple(grid.end_models), rows, _curves(finished), distances, settings, notes)
    # Older results stay until all new ones are complete.
    with replaced_entries(folder) as temporary:
        for name, text in texts:
            (temporary / name).write_text(text, encoding="utf-8")
        write_report(results, temporary)
        write_tensorboard(results, temporary / "tensorboard")


def failures(finished: Sequence[Finished]) -> list[str]:
    """A sentence for each test set that could not be had, and for each reason that cells failed for."""
    cells: dict[str, list[str]] = {}
    for done in finished:
        if done.error is not None:
            cells.setdefault(done.error, []).append(done.cell.name)
    absent = {name: reason for done in finished for name, reason in done.missing.items()}
    return [f"Not measured on {name}: {reason}" for name, reason in absent.items()] + [
        f"Failed: {names[0]}{f' and {len(names) - 1} more cells' if len(names) > 1 else ''}: {error}"
        for error, names in cells.items()
    ]


def shared_texts(grid: Grid) -> list[str]:
    """A sentence for each end model and test set that share texts: scores there say nothing about new texts.

    Data that cannot be read are left out.
    """
    tests = {grid.signature(module): module for module in [e.data for e in grid.end_models.values()]}
    tests |= {grid.signature(module): module for module in grid.out_of_domain}
    # Each text is read once: there are as many comparisons as end models times test sets.
    texts = [(getattr(module, "name", type(module).__name__), _texts(module, "test")) for module in tests.values()]
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
        return list(getattr(data, "texts", lambda _: [])(split))
    except Exception:
        # Why data cannot be read stands with the cells that failed for it.
        return []


def _count(samples: int | None) -> str:
    return "all" if samples is None else str(samples)


def _over_seeds(finished: Sequence[Finished]) -> list[Row]:
    """The mean over seeds of every score; a seed whose cell failed is missing in it."""
    found: dict[tuple, list[Row]] = {}
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
    found: dict[tuple, list[Distance]] = {}
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
