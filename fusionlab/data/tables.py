"""Tables of any origin: the hub, folders and files."""

import dataclasses
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import datasets
import datasets.config
from datasets import Dataset, DatasetDict, Features, load_dataset, load_from_disk

from fusionlab.checkpoints.hub import unreachable
from fusionlab.data.json_lines import refuse_null_rows
from fusionlab.data.unreadable import NO_ROWS, fault, files_of
from fusionlab.errors import InputError, first_line
from fusionlab.paths import expanded

# Of data whose classes have only numbers.
MOST_CLASSES = 100_000
FILE_BUILDERS = {
    ".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".arrow": "arrow",
    ".txt": "text",
}  # fmt: skip
# Files of a folder that `Dataset.save_to_disk` wrote, of several splits and of one.
_SAVED = ("dataset_dict.json", "state.json")


@dataclasses.dataclass(frozen=True)
class Source:
    """The place of a table."""

    path: str
    """A hub id, a folder or a file."""
    config_name: str | None = None
    """Configuration of a hub data set that has several."""
    split_column: str | None = None
    """Column that names the split of each row, for files that hold several splits."""


def load(source: Source, split: str | None) -> Any:
    """Read a data set.

    Args:
        source: where it is.
        split: one split, or a slice of it; None for all, by name.

    Returns:
        A `datasets.Dataset`, or a mapping of them.

    Raises:
        InputError: one sentence on why it cannot be read.
    """
    path, between = expanded(source.path), None
    try:
        refuse_null_rows(path)
        with quiet_datasets():
            if path.is_file():
                builder = FILE_BUILDERS.get(path.suffix)
                if builder is None:
                    known = ", ".join(FILE_BUILDERS)
                    raise InputError(f"{path} is a {path.suffix} file; one of {known} was expected")
                options = {"sep": between} if (between := separator(path)) else {}
                return load_dataset(builder, data_files=str(path), split=split, **options)
            if any((path / name).is_file() for name in _SAVED):
                return _saved(path, split)
            if not path.is_dir():
                refuse_no_id(source.path)
            options = {"sep": between} if path.is_dir() and (between := separator(path)) else {}
            # The library takes a folder called csv or json for a reader of its own, unless its whole path is given.
            place = str(path.absolute()) if path.is_dir() else source.path
            return load_dataset(place, source.config_name, split=split, **options)
    except InputError:
        raise
    except Exception as error:
        # Builders, the hub client and Arrow each raise their own; the sentence says which data set and why.
        where = f" split {split!r}" if split else ""
        reason = first_line(error.__cause__ or error)
        files = [file for file in files_of(path) if file.suffix in FILE_BUILDERS]
        if (words := fault(files, reason, between or ",")) is not None:
            raise InputError(words) from error
        if NO_ROWS in reason:
            raise InputError(f"{source.path}{where and ':'}{where} holds no row; expected at least one") from error
        # A data set that the hub has and that does not fit raises others.
        is_away = not path.exists() and isinstance(error, ConnectionError | FileNotFoundError)
        hint = f"; {unreachable(error)}, or give a file or folder" if is_away else ""
        raise InputError(f"{source.path}:{where} cannot be read as a data set ({reason}){hint}") from error


def separator(path: Path) -> str | None:
    """The character between the columns of a table of text, or of those in a folder; None of data of other kinds.

    Args:
        path: a file, or a folder with tables.

    Raises:
        InputError: tables of one folder that are divided otherwise.
    """
    files = files_of(path)
    if not files or any(FILE_BUILDERS.get(file.suffix) != "csv" for file in files):
        return None
    found = {_delimiter(file): file for file in files}
    if len(found) > 1:
        first, second = list(found.items())[:2]
        raise InputError(
            f"{path}: the columns of {first[1].name} are divided by {first[0]!r}, those of {second[1].name} by "
            f"{second[0]!r}; expected tables of one kind"
        )
    return next(iter(found))


def _delimiter(path: Path) -> str:
    """The character between the columns of a table of text: a tab in ``.tsv``, else what its first line has.

    A semicolon, a tab or a bar counts only in a first line without any comma.
    """
    if path.suffix == ".tsv":
        return "\t"
    with path.open(encoding="utf-8", errors="replace") as file:
        first = file.readline()
    return "," if "," in first else max(";\t|", key=first.count) if any(c in first for c in ";\t|") else ","


def _saved(path: Path, split: str | None) -> Any:
    """A data set as ``save_to_disk`` wrote it; one table is its ``train`` split, as a file is."""
    found = load_from_disk(str(path))
    parts = found if isinstance(found, DatasetDict) else DatasetDict({"train": found})
    if split is not None and split not in parts:
        raise InputError(f"{path} has no split {split!r}; it has {', '.join(parts)}")
    return parts if split is None else parts[split]


def numbered(largest: int, path: str, column: str) -> list[str]:
    """The names of classes that have only numbers.

    Args:
        largest: the largest number in the data.
        path: of the data, for messages.
        column: that holds the numbers, for messages.

    Raises:
        InputError: a number that no class can have: each class takes memory, in the head of a model too.
    """
    if largest >= MOST_CLASSES:
        raise InputError(
            f"{path}: column {column!r} holds the class {largest}; expected numbers below {MOST_CLASSES:,}, or names"
        )
    return [str(index) for index in range(largest + 1)]


def refuse_no_id(path: str) -> None:
    """Refuse what can be no id of a data set of the hub, so that nobody is asked for it over the network.

    Args:
        path: neither a file nor a folder.

    Raises:
        InputError: it is a device, a pipe or a link that leads nowhere, or is called as only files are.
    """
    place = Path(path).expanduser()
    if os.path.lexists(place):
        raise InputError(f"{path} is no plain file or folder; expected one, or the id of a data set of the hub")
    if len(place.parts) > 2 or place.is_absolute() or place.suffix in FILE_BUILDERS or path.startswith((".", "~")):
        raise InputError(f"{path}: there is no such file or folder")


def generated(
    rows: Callable[..., Iterator[dict[str, Any]]], features: Features, files: Sequence[Path], **keywords: Any
) -> Dataset:
    """A table from files that the datasets library has no reader for, through its cache.

    Args:
        rows: yields the rows, given ``stamps`` (path, time and size of each file, which name the result in the cache)
            and the keywords.
        features: of the columns.
        files: what is read.
        keywords: for `rows`.

    Raises:
        InputError: what `rows` refuses.
    """
    stamps = tuple((str(file.resolve()), file.stat().st_mtime_ns, file.stat().st_size) for file in files)
    try:
        with quiet_datasets():
            return Dataset.from_generator(rows, features=features, gen_kwargs={"stamps": stamps, **keywords})
    except Exception as error:
        # The library wraps whatever a generator raises.
        if isinstance(error.__cause__, InputError):
            raise error.__cause__ from error
        reason = first_line(error.__cause__ or error)
        words = fault(files, reason) or f"{files[0]}: it cannot be read as text ({reason})"
        raise InputError(words) from error


def require_columns(source: Source, rows: Dataset, columns: Sequence[str]) -> None:
    """Refuse a table that lacks a column.

    Raises:
        InputError: names the column, and those that there are.
    """
    for column in columns:
        if column not in rows.column_names:
            raise InputError(f"{source.path} has no column {column!r}; it has {', '.join(rows.column_names) or 'none'}")


@contextmanager
def quiet_datasets() -> Iterator[None]:
    """Nothing but the data inside the block: no progress bars, as the Trainer shows its own, and no log lines.

    What a reader logs as an error it also raises, and that is told once, as one sentence. The library counts loads at
    a server of its own, even of a local file; that is off as well.
    """
    shown = datasets.are_progress_bars_disabled() is False
    verbosity = datasets.logging.get_verbosity()
    counting = datasets.config.HF_UPDATE_DOWNLOAD_COUNTS
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(logging.CRITICAL)
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    try:
        yield
    finally:
        datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = counting
        datasets.logging.set_verbosity(verbosity)
        if shown:
            datasets.enable_progress_bars()
