"""Tables of any origin: the hub, folders and files; choosing, holding out and limiting their splits."""

import dataclasses
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import datasets
import datasets.config
import numpy as np
from datasets import Dataset, Features, concatenate_datasets, load_dataset

from fusionlab.data.json_lines import refuse_null_rows
from fusionlab.errors import InputError, first_line
from fusionlab.paths import expanded

# Of data whose classes have only numbers.
MOST_CLASSES = 100_000
FILE_BUILDERS = {
    ".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".arrow": "arrow", ".txt": "text",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Source:
    """The place of a table."""

    path: str
    """A hub id, a folder or a file."""
    config_name: str | None = None
    """Configuration of a hub data set that has several."""
    split_column: str | None = None
    """Column that names the split of each row, for files that hold several splits."""


@dataclasses.dataclass(frozen=True)
class Splits:
    """The rows that are trained, validated and tested on."""

    names: Mapping[str, str | None]
    """Names in the data for ``train``, ``val`` and ``test``; None for none."""
    val_size: int | float = 0
    """Without a ``val`` split: rows (or the share of them, below 1) held out from ``train``."""
    test_size: int | float = 0
    """The same without a ``test`` split; held out first, so that it does not depend on `val_size`."""
    test_on_all: bool = False
    """True if all rows are test rows."""
    limit: int | None = None
    """At most this many rows of each split."""
    optional: bool = False
    """True if a name that the data does not have is like none."""


def refuse_wrong_splits(splits: Splits) -> None:
    """Refuse sizes that are no sizes.

    Raises:
        InputError: names the option.
    """
    for name, value in (("val_size", splits.val_size), ("test_size", splits.test_size)):
        # Not one number is 0 or more: a NaN is neither above nor below.
        if not value >= 0 or (isinstance(value, float) and value >= 1 and not value.is_integer()):
            raise InputError(f"data.{name} is {value}, but a number of rows or a share from 0 to below 1 was expected")
    if splits.limit is not None and splits.limit < 1:
        raise InputError(f"data.limit is {splits.limit}, but at least 1 was expected")


def named_splits(
    source: Source, names: Mapping[str, str | None], columns: Sequence[str] = (), optional: bool = False
) -> dict[str, Dataset]:
    """Read the splits that the data itself has.

    Args:
        source: where they are.
        names: names of the splits in the data, by what they are used for; None for none.
        columns: columns that must be there; others are left out as early as possible, as tables may have thousands. All
            are kept if none is named.
        optional: whether a split that is not there is left out instead of refused.

    Returns:
        Rows for each name that is not None. Where no row of the split column says anything, all are ``train``.

    Raises:
        InputError: nothing to read, a missing column or split, or an empty split.
    """
    if source.split_column:
        whole = concatenate_datasets([_only(source, part, columns) for part in load(source, None).values()])
        rows = split_by_column(whole, source, names, optional)
    elif optional:
        parts = load(source, None)
        rows = {use: parts[name] for use, name in names.items() if name is not None and name in parts}
    else:
        # One load for each split, so that slices such as ``train[:80%]`` mean what they mean to the library.
        rows = {use: load(source, name) for use, name in names.items() if name is not None}
    rows = {use: _only(source, split, columns) for use, split in rows.items()}
    for use, split in rows.items():
        if not len(split):
            raise InputError(f"{source.path}: split {names[use]!r} is empty")
    return rows


def _only(source: Source, rows: Dataset, columns: Sequence[str]) -> Dataset:
    """The columns that are needed, once they are known to be there; with that of the splits, where it is there."""
    require_columns(source, rows, columns)
    if not columns:
        return rows
    return rows.select_columns([name for name in rows.column_names if name in {*columns, source.split_column}])


def divided(rows: Mapping[str, Dataset], splits: Splits, path: str) -> dict[str, Dataset]:
    """Hold out what has no split of its own, and keep at most `splits.limit` rows of each.

    Args:
        rows: by use: ``train``, ``val``, ``test``.
        splits: sizes.
        path: of the data, for messages.

    Returns:
        Rows by use, drawn at random but always the same.

    Raises:
        InputError: a split that has to be divided is too small.
    """
    parts = dict(rows)
    if splits.test_on_all:
        parts = {"test": concatenate_datasets(list(parts.values()))}
    for use, size in (("test", splits.test_size), ("val", splits.val_size)):
        if size and use not in parts and "train" in parts:
            count = held_out(size, len(parts["train"]), use)
            order = shuffled(np.arange(len(parts["train"])))
            parts[use] = parts["train"].select(np.sort(order[:count]))
            parts["train"] = parts["train"].select(np.sort(order[count:]))
    if not parts:
        raise InputError(f"{path} has none of the splits {', '.join(str(name) for name in splits.names.values())}")
    limit = splits.limit
    return {
        use: split if limit is None or limit >= len(split) else split.select(shuffled(np.arange(len(split)))[:limit])
        for use, split in parts.items()
    }


def held_out(size: int | float, rows: int, use: str) -> int:
    """The number of rows that are held out.

    Args:
        size: a number of rows, or a share of them below 1.
        rows: how many there are.
        use: ``val`` or ``test``, for messages.

    Raises:
        InputError: no row would be left.
    """
    count = int(size) if size >= 1 else max(1, round(size * rows))
    if count >= rows:
        raise InputError(f"data.{use}_size is {size}, but the training split has only {rows} rows")
    return count


def shuffled(indices: np.ndarray) -> np.ndarray:
    """Rows in a fixed random order: many data sets are sorted by class, so that the first rows are all of one."""
    return np.random.default_rng(0).permutation(indices)


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
    path = expanded(source.path)
    try:
        refuse_null_rows(path)
        with quiet_datasets():
            if path.is_file():
                builder = FILE_BUILDERS.get(path.suffix)
                if builder is None:
                    known = ", ".join(FILE_BUILDERS)
                    raise InputError(f"{path} is a {path.suffix} file; one of {known} was expected")
                return load_dataset(builder, data_files=str(path), split=split)
            if not path.is_dir():
                refuse_no_id(source.path)
            return load_dataset(str(path) if path.is_dir() else source.path, source.config_name, split=split)
    except InputError:
        raise
    except Exception as error:
        # Builders, the hub client and Arrow each raise their own; the sentence says which data set and why.
        where = f" split {split!r}" if split else ""
        reason = first_line(error.__cause__ or error)
        raise InputError(f"{source.path}:{where} cannot be read as a data set ({reason})") from error


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
        raise InputError(f"{files[0]}: it cannot be read as text ({first_line(error.__cause__ or error)})") from error


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


def split_by_column(
    rows: Dataset, source: Source, names: Mapping[str, str | None], optional: bool = False
) -> dict[str, Dataset]:
    """Divide a table by the column that names each row's split.

    Args:
        rows: the whole table.
        source: says which column.
        names: names of the splits in the column, by what they are used for; None for none.
        optional: whether a split that is not there is left out instead of refused.

    Returns:
        Rows by use. Where the column says nothing about any row, all are ``train``.

    Raises:
        InputError: no such column, or no row of a split.
    """
    column = str(source.split_column)
    require_columns(source, rows, [column])
    told = rows.select_columns([column])[column][:]
    if odd := [value for value in told if isinstance(value, list | dict)]:
        raise InputError(f"{source.path}: column {column!r} holds {str(odd[0])[:100]}; expected the name of a split")
    values = np.asarray(told, dtype=object)
    if len(values) and all(value is None for value in values) and names.get("train") is not None:
        return {"train": rows}
    chosen = {}
    for use, name in names.items():
        if name is None or (optional and name not in values):
            continue
        if name not in values:
            present = ", ".join(sorted({str(value) for value in values}))
            raise InputError(f"{source.path}: no row has {name!r} in column {column!r}; it holds {present}")
        chosen[use] = rows.select(np.flatnonzero(values == name))
    return chosen
