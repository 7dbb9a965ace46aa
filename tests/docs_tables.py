"""Tables of options in the docs, out of the options' docstrings: ``python -m tests.docs_tables`` writes them again."""

from pathlib import Path

from fusionlab.commands import matching_options
from fusionlab.commands.option_groups import table
from fusionlab.polish import PolishOptions

ROOT = Path(__file__).parents[1]
# By the name in the marks around each.
PAGE = ROOT / "docs" / "matching.md"
TABLES = {
    "matching": table(matching_options.options(), leave_out=("seed",)),
    "polish": table({PolishOptions: ""}, leave_out=("seed",)).replace("| `--", "| `--polish."),
}


def written(text: str) -> str:
    """The page's text with its tables as they should be."""
    for name, rows in TABLES.items():
        begin, end = f"<!-- options of {name}, written by make docs -->", f"<!-- end of options of {name} -->"
        before, rest = text.split(begin)
        _, after = rest.split(end)
        text = f"{before}{begin}\n\n{rows}\n\n{end}{after}"
    return text


def main() -> None:
    """Write the tables."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
