"""Guesses which column of a table holds the labels of a head, and how its values are the classes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from datasets import ClassLabel, Dataset, List, Value

from fusionlab.data.columns import listed, shown
from fusionlab.errors import InputError
from fusionlab.forward import IGNORED

LABEL = (
    "label", "labels", "target", "class", "category", "sentiment", "emotion", "emotions", "topic", "intent", "stars",
    "rating", "score", "similarity", "gold", "y",
)  # fmt: skip
_NUMBERS = ("id", "idx", "index", "unnamed: 0", "__index_level_0__")
_UNKNOWN = (None, IGNORED, -1)
_SHOWN = 6


@dataclass(frozen=True)
class Labels:
    """A column of labels, and how its values are the classes of a head.

    Attributes:
        column: its name.
        values: what it holds for each class, in their order; None where it holds names or numbers of the classes.
        told: the same in words; empty where there is nothing to tell.
    """

    column: str
    values: list[Any] | None = None
    told: str = ""


def number_column(rows: Dataset) -> Labels:
    """The column of the numbers that a regression gives.

    Raises:
        InputError: none is named as one, and not exactly one holds decimal numbers.
    """
    numeric = [name for name in rows.column_names if _is_number(rows.features[name])]
    names = {name.lower(): name for name in reversed(numeric)}
    named = [names[name] for name in LABEL if name in names]
    decimal = [name for name in numeric if rows.features[name].dtype.startswith(("float", "double"))]
    if not named and len(decimal) != 1:
        raise InputError(
            f"which column holds the numbers to be told is not clear ({listed(rows)}); expected data.label_column"
        )
    return Labels((named or decimal)[0])


def label_column(
    parts: Sequence[Dataset], classes: Sequence[str], is_named: bool, taken: Iterable[str | None] = ()
) -> Labels:
    """The column of the labels: named as one and holding classes of the head, else any that holds their names.

    Args:
        parts: splits of one table.
        classes: of the head.
        is_named: whether the head has more than numbers for them.
        taken: columns that hold something else.

    Raises:
        InputError: no column holds classes of the head, or several do and none is named as labels are.
    """
    rows, kept = parts[0], set(taken)
    free = [name for name in rows.column_names if name not in kept and name.lower() not in _NUMBERS]
    names = {name.lower(): name for name in reversed(free)}
    first = [names[name] for name in LABEL if name in names]
    reasons = []
    for name in first:
        try:
            return labels_in(parts, name, classes, is_named)
        except InputError as error:
            reasons.append(str(error))
    found = []
    for name in free:
        if name in first or not _may_be_labels(rows.features[name]):
            continue
        try:
            found.append(labels_in(parts, name, classes, is_named))
        except InputError:
            continue
    if len(found) == 1:
        return found[0]
    if found:
        columns = " and ".join(one.column for one in found)
        raise InputError(f"both {columns} may hold the labels; expected data.label_column, the one that does")
    if reasons:
        raise InputError(reasons[0])
    raise InputError(
        f"no column holds labels of the model, which are {shown(classes)} ({listed(rows)}); expected "
        f"data.label_column, and data.label_values where it holds other words for them"
    )


def labels_in(parts: Sequence[Dataset], column: str, classes: Sequence[str], is_named: bool) -> Labels:
    """The way in which the values of a column are the classes of a head.

    Args:
        parts: splits of one table.
        column: of labels, or of lists of them.
        classes: of the head, in order.
        is_named: whether the head has more than numbers for them.

    Raises:
        InputError: they are not.
    """
    feature = parts[0].features[column]
    feature = getattr(feature, "feature", feature)
    if isinstance(feature, ClassLabel):
        return _of_class_label(column, list(feature.names), classes, is_named)
    found = _found(parts, column) - set(_UNKNOWN)
    if found and all(isinstance(value, str) for value in found):
        return _of_words(column, sorted(found), classes)
    if found and all(isinstance(value, bool) for value in found):
        if len(classes) == 2:
            return Labels(column, [False, True], f"False taken for {classes[0]}, True for {classes[1]}")
    elif found and all(isinstance(value, int) or (isinstance(value, float) and value.is_integer()) for value in found):
        # Whole numbers are written as 0.0 and 1.0 where a value of the column is missing.
        is_decimal = any(isinstance(value, float) for value in found)
        if found <= set(range(len(classes))):
            own = list(range(len(classes))) if is_decimal else None
            return Labels(column, own, f"its numbers taken for {_numbered(classes)}" if is_named else "")
        if min(found) == 1 and max(found) == len(classes):
            counted = list(range(1, len(classes) + 1))
            return Labels(column, counted, f"its numbers from 1 taken for {shown(classes)}, in this order")
    raise InputError(
        f"column {column!r} holds {shown(map(str, sorted(found, key=str)))}, and the model's {len(classes)} classes "
        f"are {shown(classes)}; expected data.label_column, another one, or data.label_values, what the column holds "
        f"for each class in this order"
    )


def column_of_values(parts: Sequence[Dataset], values: Sequence[Any], taken: Iterable[str | None] = ()) -> Labels:
    """The column that holds nothing but given values: one that is named as labels are, else the only one.

    Args:
        parts: splits of one table.
        values: what it holds for each class, in order; numbers as text too.
        taken: columns that hold something else.

    Raises:
        InputError: no column holds only these, or several do and none is named as labels are.
    """
    rows, kept = parts[0], set(taken)
    free = [name for name in rows.column_names if name not in kept and name.lower() not in _NUMBERS]
    fitting = [name for name in free if _holds_only(parts, name, values)]
    called = {name.lower(): name for name in reversed(fitting)}
    named = [called[name] for name in LABEL if name in called]
    if named or len(fitting) == 1:
        return given_values(parts, (named or fitting)[0], values)
    if fitting:
        raise InputError(
            f"both {' and '.join(fitting)} may hold the labels; expected data.label_column, the one that does"
        )
    likely = next((name for name in free if name.lower() in LABEL), None)
    held = "" if likely is None else f"; {likely!r} holds {shown(sorted(map(str, _found(parts, likely))))}"
    raise InputError(
        f"no column holds {shown(map(str, values))} and nothing else ({listed(rows)}{held}); expected "
        f"data.label_column, and in data.label_values what it holds for each class"
    )


def given_values(parts: Sequence[Dataset], column: str, values: Sequence[Any]) -> Labels:
    """A column of labels whose values were given, as the column itself has them.

    Args:
        parts: splits of one table.
        column: of labels, or of lists of them.
        values: what it holds for each class, in order: 1 is found as ``"1"`` and 1.0 too, the name of a class of the
            data as its number. What is not found stays as it is.
    """
    feature = getattr(parts[0].features[column], "feature", parts[0].features[column])
    if isinstance(feature, ClassLabel):
        names = list(feature.names)
        return Labels(column, [names.index(value) if value in names else value for value in map(_plain, values)])
    found = {_plain(value): value for value in _found(parts, column)}
    return Labels(column, [found.get(_plain(value), value) for value in values])


def _holds_only(parts: Sequence[Dataset], column: str, values: Sequence[Any]) -> bool:
    feature = getattr(parts[0].features[column], "feature", parts[0].features[column])
    if not isinstance(feature, Value | ClassLabel):
        return False
    unknown = {None, IGNORED} | ({-1} - set(values))
    held = _found(parts, column) - unknown
    return bool(held) and held <= {value for value in given_values(parts, column, values).values or () if value in held}


def _plain(value: Any) -> Any:
    """A value as text by which 1, 1.0 and "1" are the same, and True and "true"."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = str(value)
    return text.lower() if text.lower() in ("true", "false") else text


def _of_class_label(column: str, names: list[str], classes: Sequence[str], is_named: bool) -> Labels:
    places = {name.strip().lower(): index for index, name in enumerate(names)}
    wanted = [name.strip().lower() for name in classes]
    if set(places) <= set(wanted) and len(places) == len(names):
        # A class that the data lack gets a number that they lack too.
        values = [places.get(name, len(names) + index) for index, name in enumerate(wanted)]
        return Labels(column, None if values == list(range(len(classes))) else values)
    if len(names) > len(classes) or (is_named and set(places) & set(wanted)):
        raise InputError(
            f"column {column!r} has {len(names)} classes ({shown(names)}), and the model {len(classes)} "
            f"({shown(classes)}); expected data.label_values, the number in the data of each class of the model"
        )
    paired = ", ".join(f"{data} for {model}" for data, model in zip(names[:_SHOWN], classes, strict=False))
    return Labels(column, None, f"its classes taken by their numbers ({paired})")


def _of_words(column: str, found: list[str], classes: Sequence[str]) -> Labels:
    spelled: dict[str, str] = {}
    for word in found:
        spelled.setdefault(word.strip().lower(), word)
    known = [name.strip().lower() for name in classes]
    if set(spelled) <= set(known) and len(spelled) == len(found):
        values = [spelled.get(name, own) for name, own in zip(known, classes, strict=True)]
        return Labels(column, None if values == list(classes) else values)
    raise InputError(
        f"column {column!r} holds {shown(found)}, and the model's {len(classes)} classes are {shown(classes)}; "
        f"expected data.label_values, what the column holds for each class in this order, or data.label_column, "
        f"another one"
    )


def _found(parts: Sequence[Dataset], column: str) -> set[Any]:
    """The different values of a column in all splits, without NaN."""
    return {value for part in parts for value in _distinct(part, column) if value == value}  # noqa: PLR0124


def _distinct(rows: Dataset, column: str) -> set[Any]:
    """The different values of a column, or in its lists."""
    values = rows.unique(column) if not isinstance(rows.features[column], List) else rows[column]
    return {item for value in values for item in (value if isinstance(value, list) else [value])}


def _may_be_labels(feature: Any) -> bool:
    inner = getattr(feature, "feature", feature)
    is_whole = isinstance(inner, Value) and not inner.dtype.startswith(("float", "double"))
    return is_whole or isinstance(inner, ClassLabel)


def _is_number(feature: Any) -> bool:
    return isinstance(feature, Value) and feature.dtype.startswith(("int", "uint", "float", "double"))


def _numbered(classes: Sequence[str]) -> str:
    return shown(f"{index} {name}" for index, name in enumerate(classes))
