"""Tables of options in the docs, out of the options' docstrings, and the pages that ``--help`` prints.

``python -m tests.docs_tables`` writes them again.
"""

import contextlib
import importlib
import io
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from fusionlab import cli
from fusionlab.commands import compare, fuse, matching_options
from fusionlab.commands.data_options import InputOptions, MeasuringOptions
from fusionlab.commands.end_models import EndModelOptions
from fusionlab.commands.gather import GatherOptions
from fusionlab.commands.match import TwinOptions
from fusionlab.commands.merging_options import MergingOptions
from fusionlab.commands.option_groups import help_of, table, table_of
from fusionlab.commands.vocab import VocabularyOptions
from fusionlab.experiment import Plan
from fusionlab.fusion import FusionPlan
from fusionlab.grid.design import Grid
from fusionlab.matching.recipe import meanings, presets
from fusionlab.polish import PolishOptions
from fusionlab.search import SearchOptions
from fusionlab.trainers import Devices

DOCS = Path(__file__).parents[1] / "docs"


def table_of_presets() -> str:
    """A Markdown table of the presets of matching, with the options that each has otherwise than `options` says."""
    lines = ["| preset | what it does | looks at inputs | options other than the defaults |", "|---|---|---|---|"]
    for name, recipe in presets().items():
        values = [*_changed(recipe.options), *([] if recipe.refine is None else _changed(recipe.refine))]
        looks = "yes, unlabelled" if recipe.needs_inputs else "no"
        lines.append(f"| `{name}` | {meanings()[name]} | {looks} | {', '.join(values)} |")
    return "\n".join(lines)


def _changed(options: Any) -> list[str]:
    """The options that differ from the default which their table shows, as they are written on the command line."""
    shown = {}
    for kind in reversed(list(matching_options.options())):
        shown |= {(field.name, help_of(kind, field.name)): field.default for field in fields(kind)}
    found = {field.name: getattr(options, field.name) for field in fields(options)}
    written = {name: ",".join(value) or "none" if isinstance(value, tuple) else value for name, value in found.items()}
    changed = [name for name, value in found.items() if value != shown[name, help_of(type(options), name)]]
    return [f"`{name} {written[name]}`" for name in changed]


# By page, and by the name in the marks around each.
TABLES = {
    "matching.md": {
        "presets": table_of_presets(),
        "matching": table(matching_options.options(), leave_out=("seed",)),
        "match": table_of((matching_options.PresetOptions, None), (TwinOptions, ("anchor", "base", "dtype"))),
        "inputs": table_of((InputOptions, None), (Devices, None)),
        "polish": table({PolishOptions: ""}, leave_out=("seed",)).replace("| `--", "| `--polish."),
    },
    "merging.md": {
        "fusion": table_of(
            (MergingOptions, None),
            (FusionPlan, ("anchor", *fuse.AFTERWARDS)),
            (MeasuringOptions, None),
            (Plan, ("points", "examples")),
            defaults=fuse.DEFAULTS,
        ),
        "search": table({SearchOptions: ""}, leave_out=("seed",)).replace("| `--", "| `--search."),
    },
    "compare.md": {
        "grids": table_of(
            (Grid, compare.GRID), (FusionPlan, ("heads",)), (compare.RunOptions, None), defaults=compare.DEFAULTS
        ),
        "end models": table_of((EndModelOptions, None)).replace("`--", "`"),
    },
    "vocabularies.md": {"vocab": table_of((VocabularyOptions, ("base", "keep")))},
    "statistics.md": {"gather": table_of((GatherOptions, ("data", "kinds", "samples", "labels", "rows")))},
}


def written(page: str, text: str) -> str:
    """The text of a page with its tables as they should be."""
    for name, rows in TABLES[page].items():
        begin, end = f"<!-- options of {name}, written by make tables -->", f"<!-- end of options of {name} -->"
        before, rest = text.split(begin)
        _, after = rest.split(end)
        text = f"{before}{begin}\n\n{rows}\n\n{end}{after}"
    return text


def help_text(command: str) -> str:
    """The help of a command as its parser prints it, 100 columns wide."""
    printed, columns = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100"
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            importlib.import_module(f"fusionlab.commands.{command}").run(["--help"])
    finally:
        os.environ.pop("COLUMNS")
        if columns is not None:
            os.environ["COLUMNS"] = columns
    return printed.getvalue()


def main() -> None:
    """Write the tables and pages."""
    for command in set(cli.COMMANDS) - set(cli.TRAINING):
        cli.help_page(command).write_text(help_text(command), encoding="utf-8")
    for page in TABLES:
        path = DOCS / page
        path.write_text(written(page, path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
