"""JSON files as data sets: what the library that reads them does not survive."""

from pathlib import Path

from fusionlab.errors import InputError

SUFFIXES = (".json", ".jsonl")


def refuse_null_rows(path: Path) -> None:
    """Refuse rows that are null: where there is no other row, Arrow's reader ends the process.

    Args:
        path: a file with one JSON value a line, or a folder whose files of that kind are looked at; whatever else it
            is, it is not read.

    Raises:
        InputError: names the file and the line.
    """
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file() and file.suffix in SUFFIXES:
            _refuse_null_rows(file)


def _refuse_null_rows(path: Path) -> None:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            value = line.strip()
            if value.startswith(b"["):
                # One list of all rows, which another reader takes.
                return
            if value == b"null":
                raise InputError(f"{path}: line {number} is null; expected an object with the columns of a row")
