"""Tables of options in the docs, out of the options' docstrings, and the pages that ``--help`` prints.

``python -m tests.docs_tables`` writes them again.
"""

import contextlib
import importlib
import io
import os
from pathlib import Path

from fusionlab import cli
from fusionlab.commands import compare, fuse, matching_options
from fusionlab.commands.data_options import InputOptions, MeasuringOptions
from fusionlab.commands.gather import GatherOptions
from fusionlab.commands.merging_options import MergingOptions
from fusionlab.commands.option_groups import table, table_of
from fusionlab.experiment import Plan
from fusionlab.fusion import FusionPlan
from fusionlab.grid.design import Grid
from fusionlab.polish import PolishOptions
from fusionlab.trainers import Devices

DOCS = Path(__file__).parents[1] / "docs"
# By page, and by the name in the marks around each.
TABLES = {
    "matching.md": {
        "matching": table(matching_options.options(), leave_out=("seed",)),
        "inputs": table_of((InputOptions, None), (Devices, None)),
        "polish": table({PolishOptions: ""}, leave_out=("seed",)).replace("| `--", "| `--polish."),
    },
    "merging.md": {
        "fusion": table_of(
            (MergingOptions, None),
            (FusionPlan, ("dtype", "anchor", *fuse.AFTERWARDS)),
            (MeasuringOptions, None),
            (Plan, ("points",)),
            defaults=fuse.DEFAULTS,
        )
    },
    "compare.md": {"grids": table_of((Grid, compare.MEASURED), (FusionPlan, ("heads",)))},
    "statistics.md": {"gather": table_of((GatherOptions, None))},
}


def written(page: str, text: str) -> str:
    """The text of a page with its tables as they should be."""
    for name, rows in TABLES[page].items():
        begin, end = f"<!-- options of {name}, written by make docs -->", f"<!-- end of options of {name} -->"
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
