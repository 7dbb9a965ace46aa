"""Texts with one label, several labels or a number: any hub data set, any local table."""

from typing import Any, Literal

import torch
from datasets import ClassLabel, Dataset
from torch import Tensor

from fusionlab.data.encoding import TextEncoder, values_of
from fusionlab.data.tables import numbered
from fusionlab.data.text import TextData
from fusionlab.errors import InputError
from fusionlab.evaluation.scores import ClassMetric
from fusionlab.forward import IGNORED, LABELS


class TextClassification(TextData):
    """Texts, or pairs of texts, from any table whose columns are named.

    Batches hold what the tokenizer gives, each of shape ``(batch, tokens)``, and ``labels``: class numbers of shape
    ``(batch,)``, or 0, 1 and -100 (unknown) of shape ``(batch, labels)``, or numbers of shape ``(batch,)``. Longer
    texts are truncated.
    """

    def __init__(
        self,
        path: str,
        tokenizer: str,
        *,
        task: Literal["classification", "multilabel", "regression"] = "classification",
        text_column: str = "text",
        pair_column: str | None = None,
        label_column: str | None = "label",
        labels: list[str] | None = None,
        label_values: list[bool | int | str] | None = None,
        annotated: list[str] | None = None,
        metric: ClassMetric | None = None,
        **options: Any,
    ) -> None:
        """Say where the texts are and which columns hold what.

        Args:
            path: a hub id, a folder of data files, or one file (Parquet, JSONL, CSV, Arrow).
            tokenizer: checkpoint folder or hub id that the tokenizer is read from; ``bytes`` for one token a byte.
            task: one label is right, several may be (the column holds lists), or the label is a number.
            text_column: column of the texts.
            pair_column: column of the second texts, for pairs.
            label_column: column of the labels: numbers from 0, or names where `labels` are given; null for texts
                without labels, which can be looked at but not measured on.
            labels: names of the labels, in order; those of the data set if it has any.
            label_values: what the column holds for each of the `labels`, in their order, where that is neither name
                nor number: ``[1, 2, 3]`` for classes that are counted from 1.
            annotated: of several labels: those that the data annotates; the others are unknown, not absent.
            metric: of a classification: what to look at first, ``accuracy`` if None, ``macro_f1`` or ``matthews``.
            options: splits, lengths and batches, see `TextData`.

        Raises:
            InputError: a value out of range.
        """
        super().__init__(path, tokenizer, **options)
        if task not in ("classification", "multilabel", "regression"):
            raise InputError(f"data.task is {task!r}, but classification, multilabel or regression was expected")
        if annotated is not None and task != "multilabel":
            raise InputError(f"data.annotated was given, but the task is {task}; expected multilabel")
        self.task = task
        self.metric = metric
        self.text_column, self.pair_column, self.label_column = text_column, pair_column, label_column
        self.annotated = annotated
        self.known_column: str | None = None
        self._labels = labels
        if label_values is not None and len(label_values) != len(labels or ()):
            raise InputError(
                f"data.label_values has {len(label_values)} values for {len(labels or ())} labels (data.labels); "
                f"expected one for each"
            )
        self.label_values = label_values

    @property
    def class_names(self) -> list[str] | None:
        """Names of the labels in order; None for a regression, and where nothing names any."""
        if self.task == "regression":
            return None
        if self._labels is None and self.label_column is not None:
            self._labels = self._names(next(iter(self.rows.values())), self.label_column)
        return self._labels

    def _names(self, rows: Dataset, column: str) -> list[str]:
        feature = rows.features[column]
        feature = getattr(feature, "feature", feature)
        if isinstance(feature, ClassLabel):
            return list(feature.names)
        every = (value for part in self.rows.values() for value in part[column])
        labels = [label for value in every for label in (value if isinstance(value, list) else [value])]
        known = [label for label in labels if label is not None and label != IGNORED]
        # Numbers only: anything else may not even be comparable.
        if not known or not all(isinstance(label, int) and label >= 0 for label in known):
            raise InputError(
                f"{self.source.path}: column {column!r} does not hold class numbers; expected data.labels, "
                f"the names in order"
            )
        return numbered(max(known), self.source.path, column)

    def columns(self) -> list[str]:
        """Texts and labels."""
        return [c for c in (self.text_column, self.pair_column, self.label_column, self.known_column) if c]

    def encoder(self) -> TextEncoder:
        """Tokens and labels."""
        values: list[Any] | None = self.label_values
        if values is None and self.label_column is not None and self.task != "regression":
            feature = next(iter(self.rows.values())).features[self.label_column]
            values = values_of(getattr(feature, "feature", feature), self.class_names)
        return TextEncoder(
            self.tokenizer,
            self.max_length,
            self.source.path,
            self.task,
            self.text_column,
            self.pair_column,
            self.label_column,
            tuple(self.class_names or ()),
            None if self.annotated is None else tuple(self.annotated),
            self.known_column,
            None if values is None else tuple(values),
        )

    def texts(self, split: str) -> list[str]:
        """The texts of a split; pairs are joined by a space."""
        if split not in self.rows:
            return []
        rows = self.rows[split]
        first = [text or "" for text in rows[self.text_column]]
        if self.pair_column is None:
            return first
        return [f"{text} {pair or ''}" for text, pair in zip(first, rows[self.pair_column], strict=True)]

    def label_counts(self) -> Tensor:
        """The number of training texts with each label: shape ``(labels,)``; without and with each, of several labels,
        ``(labels, 2)``."""
        self._load()
        labels = torch.tensor(self._encoded["train"][LABELS][:])
        values = range(2) if self.task == "multilabel" else range(len(self.class_names or ()))
        return torch.stack([(labels == value).sum(0) for value in values], -1)
