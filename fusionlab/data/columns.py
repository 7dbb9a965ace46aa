"""Guesses what the columns of a table hold: by their names, by their types, and by the labels that a head has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from datasets import ClassLabel, Dataset, Image, List, Value

from fusionlab.errors import InputError
from fusionlab.forward import IGNORED

TEXT = (
    "text", "sentence", "review", "content", "body", "comment", "tweet", "message", "utterance", "document", "article",
    "abstract", "title", "question", "prompt", "input",
)  # fmt: skip
PAIRS = (
    ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("question", "sentence"),
    ("text1", "text2"), ("text_a", "text_b"), ("sentence_a", "sentence_b"), ("text", "text_pair"),
    ("question", "context"), ("question", "answer"), ("query", "passage"),
)  # fmt: skip
LABEL = (
    "label", "labels", "target", "class", "category", "sentiment", "emotion", "emotions", "topic", "intent", "stars",
    "rating", "score", "similarity", "gold", "y",
)  # fmt: skip
IMAGE = ("image", "img", "picture", "photo", "file", "path", "file_name", "filename")
WORDS, TAGS = ("tokens", "words"), ("ner_tags", "tags", "ner", "labels", "pos_tags", "chunk_tags", "tag")
SPLIT = ("split", "fold", "partition")
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


def text_columns(rows: Dataset, taken: Iterable[str | None] = ()) -> tuple[str, str | None]:
    """The column of the texts, and of the second texts of pairs.

    Args:
        rows: a table.
        taken: columns that hold something else.

    Raises:
        InputError: no column holds texts.
    """
    texts = [name for name in rows.column_names if name not in set(taken) and _is_text(rows.features[name])]
    names = {name.lower(): name for name in reversed(texts)}
    for first, second in PAIRS:
        if first in names and second in names:
            return names[first], names[second]
    for name in TEXT:
        if name in names:
            return names[name], None
    if not texts:
        raise InputError(f"no column holds texts ({_listed(rows)}); expected data.text_column, one of them")
    return max(texts, key=lambda name: _mean_length(rows, name)), None


def image_column(rows: Dataset) -> str:
    """The column of the images: of the library's own type, encoded, or paths of files.

    Raises:
        InputError: there is none.
    """
    typed = [name for name in rows.column_names if isinstance(rows.features[name], Image)]
    names = {name.lower(): name for name in reversed(rows.column_names)}
    named = [names[name] for name in IMAGE if name in names]
    if not typed and not named:
        raise InputError(f"no column holds images ({_listed(rows)}); expected data.image_column, one of them")
    return (typed or named)[0]


def word_columns(rows: Dataset) -> tuple[str, str]:
    """The columns of the words and of their tags.

    Raises:
        InputError: there are none.
    """
    lists = [name for name in rows.column_names if isinstance(rows.features[name], List)]
    names = {name.lower(): name for name in reversed(lists)}
    words = [names[name] for name in WORDS if name in names]
    tags = [names[name] for name in TAGS if name in names and names[name] not in words]
    if not words or not tags:
        raise InputError(
            f"no two columns hold lists of words and of their tags ({_listed(rows)}); expected data.token_column and "
            f"data.tag_column"
        )
    return words[0], tags[0]


def split_column(rows: Dataset) -> str | None:
    """The column that names the split of each row; None where there is none."""
    names = {name.lower(): name for name in rows.column_names if _is_text(rows.features[name])}
    return next((names[name] for name in SPLIT if name in names), None)


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
            f"which column holds the numbers to be told is not clear ({_listed(rows)}); expected data.label_column"
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
        f"no column holds labels of the model, which are {shown(classes)} ({_listed(rows)}); expected "
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
    found = {value for part in parts for value in _distinct(part, column)} - set(_UNKNOWN)
    if found and all(isinstance(value, str) for value in found):
        return _of_words(column, sorted(found), classes)
    if found and all(isinstance(value, int) for value in found):
        if found <= set(range(len(classes))):
            is_told = is_named and not any(isinstance(value, bool) for value in found)
            return Labels(column, None, f"its numbers taken for {_numbered(classes)}" if is_told else "")
        if min(found) == 1 and max(found) == len(classes):
            counted = list(range(1, len(classes) + 1))
            return Labels(column, counted, f"its numbers from 1 taken for {shown(classes)}, in this order")
    raise InputError(
        f"column {column!r} holds {shown(map(str, sorted(found, key=str)))}, and the model's {len(classes)} classes "
        f"are {shown(classes)}; expected data.label_column, another one, or data.label_values, what the column holds "
        f"for each class in this order"
    )


def _of_class_label(column: str, names: list[str], classes: Sequence[str], is_named: bool) -> Labels:
    places = {name.strip().lower(): index for index, name in enumerate(names)}
    wanted = [name.strip().lower() for name in classes]
    if is_named and set(places) <= set(wanted) and len(places) == len(names):
        # A class that the data lack gets a number that they lack too.
        values = [places.get(name, len(names) + index) for index, name in enumerate(wanted)]
        return Labels(column, None if values == list(range(len(classes))) else values)
    if len(names) > len(classes) or (is_named and set(places) & set(wanted)):
        raise InputError(
            f"column {column!r} has {len(names)} classes ({shown(names)}), and the model {len(classes)} "
            f"({shown(classes)}); expected data.label_values, the number in the data of each class of the model"
        )
    paired = ", ".join(f"{data} for {model}" for data, model in zip(names[:_SHOWN], classes, strict=False))
    return Labels(column, None, f"its classes taken by their numbers ({paired})" if is_named else "")


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


def _distinct(rows: Dataset, column: str) -> set[Any]:
    """The different values of a column, or in its lists."""
    values = rows.unique(column) if not isinstance(rows.features[column], List) else rows[column]
    return {item for value in values for item in (value if isinstance(value, list) else [value])}


def _may_be_labels(feature: Any) -> bool:
    inner = getattr(feature, "feature", feature)
    is_whole = isinstance(inner, Value) and not inner.dtype.startswith(("float", "double"))
    return is_whole or isinstance(inner, ClassLabel)


def _is_text(feature: Any) -> bool:
    return isinstance(feature, Value) and feature.dtype in ("string", "large_string")


def _is_number(feature: Any) -> bool:
    return isinstance(feature, Value) and feature.dtype.startswith(("int", "uint", "float", "double"))


def _mean_length(rows: Dataset, column: str) -> float:
    texts = rows.select(range(min(len(rows), 100)))[column]
    return sum(len(text or "") for text in texts) / max(len(texts), 1)


def _listed(rows: Dataset) -> str:
    return f"columns: {', '.join(rows.column_names) or 'none'}"


def shown(values: Iterable[str]) -> str:
    """Some names in a sentence: the first six, and how many more there are.

    Args:
        values: names.
    """
    found = list(values)
    return ", ".join(found[:_SHOWN]) + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")


def _numbered(classes: Sequence[str]) -> str:
    return shown(f"{index} {name}" for index, name in enumerate(classes))
