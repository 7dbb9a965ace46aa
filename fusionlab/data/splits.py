"""Splits of tables: those that the data have, and those that are held out; limits of their rows."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from datasets import Dataset, concatenate_datasets

from fusionlab.data.tables import Source, load, require_columns
from fusionlab.errors import InputError


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
    """Refuse sizes that are no sizes, and a split that settings are chosen on and results are told of.

    Raises:
        InputError: names the option.
    """
    for name, value in (("val_size", splits.val_size), ("test_size", splits.test_size)):
        # Not one number is 0 or more: a NaN is neither above nor below.
        if not value >= 0 or (isinstance(value, float) and value >= 1 and not value.is_integer()):
            raise InputError(f"data.{name} is {value}, but a number of rows or a share from 0 to below 1 was expected")
    validated = splits.names.get("val")
    is_one = validated is not None and validated == splits.names.get("test")
    # With all three the same, nobody takes scores for those of other data.
    if is_one and validated != splits.names.get("train") and not splits.test_on_all:
        raise InputError(
            f"data.val_split and data.test_split are both {validated!r}; expected two splits, or null for "
            f"data.val_split and rows of training held out by data.val_size"
        )
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
    rows = with_parts(rows, columns)
    require_columns(source, rows, columns)
    if not columns:
        return rows
    return rows.select_columns([name for name in rows.column_names if name in {*columns, source.split_column}])


def with_parts(rows: Dataset, columns: Sequence[str]) -> Dataset:
    """The table with a column for each part of a column of parts, where those are asked for.

    Args:
        rows: the table.
        columns: names; ``translation.en`` is the part ``en`` of the column ``translation``.
    """
    is_part = any("." in name and name not in rows.column_names for name in columns)
    return rows.flatten() if is_part else rows


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
            count = held_out(size, len(parts["train"]), use, path)
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


def held_out(size: int | float, rows: int, use: str, path: str) -> int:
    """The number of rows that are held out.

    Args:
        size: a number of rows, or a share of them below 1.
        rows: how many there are.
        use: ``val`` or ``test``, for messages.
        path: of the data, for messages.

    Raises:
        InputError: no row would be left.
    """
    count = int(size) if size >= 1 else max(1, round(size * rows))
    if count >= rows:
        told, smaller = ("1 row", "") if rows == 1 else (f"{rows} rows", f"a smaller data.{use}_size, ")
        raise InputError(
            f"{path}: data.{use}_size is {size}, but the training split has only {told}, of which one at least must be "
            f"left; expected more rows, {smaller}or a split of its own (data.{use}_split)"
        )
    return count


def shuffled(indices: np.ndarray) -> np.ndarray:
    """Rows in a fixed random order: many data sets are sorted by class, so that the first rows are all of one."""
    return np.random.default_rng(0).permutation(indices)
