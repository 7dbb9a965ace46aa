"""Guesses which column of a table holds labels that say by themselves what they are, and which classes these are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from datasets import ClassLabel, Dataset

from fusionlab.data.columns import listed, shown
from fusionlab.data.labels import LABEL
from fusionlab.errors import InputError


class NamedClasses(NamedTuple):
    """A column of labels with names.

    Attributes:
        column: its name.
        names: of the classes, in order.
        values: what the column holds for each; None where it holds their numbers.
    """

    column: str
    names: list[str]
    values: list[Any] | None


def named_classes(
    parts: Sequence[Dataset],
    column: str | None = None,
    values: Sequence[Any] | None = None,
    taken: Iterable[str | None] = (),
) -> NamedClasses:
    """The column of the labels, and the names of the classes.

    Args:
        parts: splits of one table.
        column: of the labels; if None, one that is named as labels are, or the only one that the library knows as such.
        values: the names in the order that they are to have; that of the alphabet, or the data's own, if None.
        taken: columns that hold something else.

    Raises:
        InputError: no column holds names of classes.
    """
    rows, kept = parts[0], set(taken)
    if column is None:
        free = [name for name in rows.column_names if name not in kept]
        called = {name.lower(): name for name in reversed(free)}
        likely = [called[name] for name in LABEL if name in called]
        likely += [name for name in free if isinstance(rows.features[name], ClassLabel) and name not in likely]
    else:
        likely = [column]
    for name in likely:
        if (found := _classes_in(parts, name)) is not None:
            return _in_order(found, values)
    held = "" if not likely else f"; {likely[0]!r} holds {shown(map(str, _distinct(parts, likely[0])))}"
    raise InputError(
        f"no column holds names of classes ({listed(rows)}{held}), and an image is told by them; expected a folder of "
        f"images for each class, a column of names (data.label_column), or --data ZeroShotImages with data.class_names"
    )


def _classes_in(parts: Sequence[Dataset], column: str) -> NamedClasses | None:
    feature = parts[0].features[column]
    if isinstance(feature, ClassLabel):
        return NamedClasses(column, list(feature.names), None)
    found = [value for value in _distinct(parts, column) if value is not None]
    if not found or not all(isinstance(value, str) for value in found):
        return None
    return NamedClasses(column, found, found)


def _in_order(found: NamedClasses, values: Sequence[Any] | None) -> NamedClasses:
    if values is None:
        return found
    if sorted(map(str, values)) != sorted(found.names):
        raise InputError(
            f"data.label_values names {shown(map(str, values))}, and column {found.column!r} holds "
            f"{shown(found.names)}; expected the same names"
        )
    names = [str(value) for value in values]
    held = names if found.values is not None else [found.names.index(name) for name in names]
    return NamedClasses(found.column, names, held)


def _distinct(parts: Sequence[Dataset], column: str) -> list[Any]:
    return sorted({value for part in parts for value in part.unique(column)}, key=str)
