"""Files of a data set that cannot be read: which of them stands in the way, and what is wrong with it."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

# Of the datasets library, pandas and Arrow, where a file or a split holds nothing.
NO_ROWS = "corresponds to no data"
_NOTHING = (NO_ROWS, "No columns to parse from file", "Please pass `features`", "StopIteration", "file size is 0 bytes")
_TABLES, _TEXTS = (".csv", ".tsv"), (".csv", ".tsv", ".txt")
# A row that no table ends with.
_END = ["end", "of the", "table"]


def files_of(path: Path) -> list[Path]:
    """The files of a data set, in order, without hidden ones and what describes it.

    Args:
        path: a file, or a folder with files.
    """
    files = [path] if path.is_file() else sorted(path.rglob("*")) if path.is_dir() else []
    return [file for file in files if file.is_file() and not file.name.startswith((".", "README"))]


def fault(files: Sequence[Path], reason: str, between: str = ",") -> str | None:
    """A sentence on the file that stands in the way; None where these reasons are others.

    Args:
        files: of the data set; they are read again only where the reason says what to look for.
        reason: why a library could not read them, in its words.
        between: the character between the columns.
    """
    if any(words in reason for words in _NOTHING):
        return next((words for file in files if (words := _nothing(file)) is not None), None)
    if "codec can't decode" in reason:
        for file in [file for file in files if len(files) == 1 or file.suffix in _TEXTS]:
            if (line := _undecoded(file)) is not None:
                return f"{file}: line {line} is not UTF-8 text; expected the file saved as UTF-8"
    tables = [file for file in files if file.suffix in _TABLES]
    if "EOF inside string" in reason:
        for file in tables:
            if (line := _open_quote(file, between)) is not None:
                return (
                    f"{file}: a quote opens in line {line} and is never closed; expected one at the end of its cell "
                    f"too, and two for each quote within a cell"
                )
    found = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", reason)
    if found is not None and len(tables) == 1:
        wanted, place, cells = found.groups()
        return (
            f"{tables[0]}: line {place} has {cells} cells; expected {wanted}, and quotes around text with {between!r}"
        )
    return None


def _nothing(file: Path) -> str | None:
    """A sentence on a file without rows; None where it has some, or is no text."""
    lines = 0
    with file.open("rb") as content:
        for line in content:
            lines += bool(line.strip())
            if lines > 1:
                return None
    if not lines:
        return f"{file} is empty; expected at least one row"
    return f"{file} holds names of columns and no row; expected at least one" if file.suffix in _TABLES else None


def _undecoded(file: Path) -> int | None:
    """The number of the first line that is not UTF-8; None where all are."""
    with file.open("rb") as content:
        for number, line in enumerate(content, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return None


def _open_quote(file: Path, between: str) -> int | None:
    """The number of the line with a quote that nothing closes; None where each is closed."""
    longest = csv.field_size_limit(sys.maxsize)
    try:
        with file.open(encoding="utf-8", errors="replace", newline="") as lines:
            rows = csv.reader(chain(lines, ["\n", between.join(_END)]), delimiter=between)
            start, end, last = 0, 0, list[str]()
            for row in rows:
                start, end, last = end, rows.line_num, row
    except csv.Error:
        return None
    finally:
        csv.field_size_limit(longest)
    # In a cell that is open the row at the end is a part of it.
    return None if last == _END else start + 1
