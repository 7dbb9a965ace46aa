"""Turning tables of texts into tables of tokens, once: the result is cached on disk."""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from datasets import ClassLabel, Dataset
from datasets.fingerprint import Hasher
from transformers import BatchEncoding, PreTrainedTokenizerBase

from fusionlab import __version__
from fusionlab.data.tables import quiet_datasets
from fusionlab.data.tokenizers import identity, tokens_of
from fusionlab.errors import InputError
from fusionlab.forward import IGNORED, LABELS

Columns = dict[str, list[Any]]


@dataclasses.dataclass(frozen=True)
class Encoder(ABC):
    """From a batch of rows to a batch of tokens and labels; what it does follows from its fields alone."""

    tokenizer: PreTrainedTokenizerBase = dataclasses.field(repr=False)
    max_length: int
    """Most tokens of a sample, special ones included."""

    @abstractmethod
    def __call__(self, rows: Columns) -> Columns:
        """Encode.

        Args:
            rows: columns of the table.

        Returns:
            Columns of tokens and labels; there may be more or fewer rows than before.
        """

    def tokens(self, *texts: Any, **options: Any) -> BatchEncoding:
        """The tokenizer's tokens of some texts.

        Args:
            texts: as the tokenizer takes them.
            options: of its call.

        Raises:
            InputError: the tokenizer is damaged in a way that shows only when it is used.
        """
        return tokens_of(self.tokenizer, *texts, **options)

    def fingerprint(self, rows: Dataset) -> str:
        """The name of the result in the cache: a digest of the rows, the tokenizer and every field."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "tokenizer"}
        known = (rows._fingerprint, __version__, type(self).__qualname__, repr(fields), identity(self.tokenizer))
        return Hasher.hash(known)


def texts_of(rows: Columns, column: str) -> list[str]:
    """The texts of a column; empty where there is none.

    Args:
        rows: columns of a table.
        column: which.

    Raises:
        InputError: something else than texts.
    """
    for value in rows[column]:
        if not isinstance(value, str | None):
            raise InputError(f"column {column!r} of the data holds {str(value)[:100]!r}, but a text was expected")
    return [value or "" for value in rows[column]]


def encoded(rows: Dataset, encoder: Encoder, batch_size: int = 1000) -> Dataset:
    """Encode a table; what was encoded before in the same way is read from the cache of the datasets library.

    Args:
        rows: the table.
        encoder: how.
        batch_size: rows that are encoded together.

    Returns:
        A table with the encoder's columns only.

    Raises:
        InputError: what the encoder refuses.
    """
    with quiet_datasets():
        return rows.map(
            encoder,
            batched=True,
            batch_size=batch_size,
            remove_columns=rows.column_names,
            new_fingerprint=encoder.fingerprint(rows),
        )


def number_of(value: Any, values: Sequence[Any], path: str, column: str) -> int:
    """The number of the class that a value of a label column stands for; none, as it is said by -100, of a missing one.

    Args:
        value: in the column.
        values: what the data have for each class, in the order of their numbers.
        path: of the data, for messages.
        column: for messages.

    Raises:
        InputError: none of the values.
    """
    missing = value in (IGNORED, -1) and value not in values
    if missing or (isinstance(value, float) and math.isnan(value)):
        return IGNORED
    if value not in values:
        known = ", ".join(map(repr, values))
        raise InputError(f"{path}: column {column!r} holds {value!r}, but data.label_values names {known}")
    return values.index(value)


def values_of(feature: Any, names: Sequence[str] | None) -> list[int] | None:
    """The numbers that a column has for classes which are named in another order than the column's own.

    Args:
        feature: of the column.
        names: of the classes, in the order of their numbers; None where they are the column's.

    Returns:
        None where the column's numbers are those of the names.
    """
    own = list(feature.names) if isinstance(feature, ClassLabel) else []
    if names is None or list(names) == own or sorted(names) != sorted(own):
        return None
    return [own.index(name) for name in names]


@dataclasses.dataclass(frozen=True)
class TextEncoder(Encoder):
    """Texts, or pairs of texts, with the labels of one of the tasks."""

    path: str
    """Of the data, for messages."""
    task: str
    """``classification``, ``multilabel`` or ``regression``."""
    text_column: str
    pair_column: str | None
    label_column: str | None
    """None for texts without labels."""
    names: tuple[str, ...]
    """The labels in order; empty for a regression."""
    known: tuple[str, ...] | None = None
    """Of several labels: those that the data annotates; the others are unknown. All if None."""
    known_column: str | None = None
    """Of several labels: column with those that are annotated in each row, instead of `known`."""
    values: tuple[Any, ...] | None = None
    """The value in the data for each of the labels, in order, where that is neither its name nor its number."""

    def __call__(self, rows: Columns) -> Columns:
        """Tokens, truncated to the maximal length, and labels."""
        pairs = None if self.pair_column is None else texts_of(rows, self.pair_column)
        texts = texts_of(rows, self.text_column)
        tokens = self.tokens(texts, pairs, truncation=True, max_length=self.max_length)
        columns = {name: tokens[name] for name in self.tokenizer.model_input_names if name in tokens}
        if self.label_column is None:
            return columns
        known = rows[self.known_column] if self.known_column else [self.known] * len(texts)
        if self.task == "multilabel":
            self._refuse_strangers(rows[self.label_column])
        labels = [self._label(value, part) for value, part in zip(rows[self.label_column], known, strict=True)]
        return columns | {LABELS: labels}

    def _refuse_strangers(self, lists: Sequence[Any]) -> None:
        """Refuse lists of names none of which is one of the labels, as where they are written otherwise."""
        names = [item for items in lists if isinstance(items, list | tuple) for item in items]
        if self.values is None and names and all(isinstance(one, str) and one not in self.names for one in names):
            raise self._wrong(names[0], f"some of {', '.join(self.names)} was")

    def _label(self, value: Any, known: Any) -> int | float | list[int]:
        if self.task == "regression":
            if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
                raise self._wrong(value, "a number was")
            return float(value)
        if self.task == "classification":
            return IGNORED if value is None else self._index(value)
        if value is None:
            return [IGNORED] * len(self.names)
        if not isinstance(value, list | tuple):
            raise self._wrong(value, "a list of labels was")
        # A label outside the chosen ones is left out: a shared list need not have what one set alone annotates.
        plain = self.values is None
        present = {item if plain and isinstance(item, str) else self.names[self._index(item)] for item in value}
        annotated = self.names if known is None else known
        return [int(name in present) if name in annotated else IGNORED for name in self.names]

    def _index(self, value: Any) -> int:
        if self.values is not None:
            return number_of(value, self.values, self.path, str(self.label_column))
        if isinstance(value, str) and value in self.names:
            return self.names.index(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(self.names):
            return value
        # Some sets, such as SNLI, have -1 where no label was agreed on.
        if isinstance(value, int) and value in (IGNORED, -1):
            return IGNORED
        raise self._wrong(value, f"a label from 0 to {len(self.names) - 1} or one of {', '.join(self.names)} was")

    def _wrong(self, value: Any, expected: str) -> InputError:
        return InputError(f"{self.path}: column {self.label_column!r} holds {value!r}, but {expected} expected")
