"""Pairs of texts with a number that says how alike they are, each text read by itself."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, get_args

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from fusionlab.checkpoints.hub import locate
from fusionlab.checkpoints.sentence_modules import sentence_modules
from fusionlab.data.encoding import Columns, Encoder, texts_of
from fusionlab.data.text import TextData
from fusionlab.data.tokenizers import BYTES
from fusionlab.errors import InputError
from fusionlab.evaluation.similarity_scores import Pooling
from fusionlab.forward import LABELS

_SECOND = "second_"


class EmbeddingSimilarity(TextData):
    """Pairs of texts from any table, with numbers that their embeddings' cosines are held against.

    Batches hold what the tokenizer gives, each of shape ``(2 pairs, tokens)``, the two texts of a pair one after the
    other, and ``labels`` of shape ``(2 pairs,)``: the number of a pair for both. Encoders are scored by Spearman's
    correlation of cosines and numbers. Longer texts are truncated.
    """

    class_names = None

    def __init__(
        self,
        path: str,
        tokenizer: str,
        *,
        text_column: str = "sentence1",
        pair_column: str = "sentence2",
        label_column: str = "score",
        scale: float = 1.0,
        pooling: Pooling | None = None,
        **options: Any,
    ) -> None:
        """Say where the pairs are and which columns hold what.

        Args:
            path: a hub id, a folder of data files, or one file (Parquet, JSONL, CSV, Arrow).
            tokenizer: checkpoint folder or hub id that the tokenizer is read from.
            text_column: column of the first texts.
            pair_column: column of the second texts.
            label_column: column of the numbers; higher ones for texts that are more alike.
            scale: the number of texts that say the same, above 0: 5 for STS-B. Labels are divided by it, so that a
                squared error can be told too; correlations do not depend on it.
            pooling: ``mean`` of all tokens, or the first one (``cls``); if None, as the sentence-transformers folder of
                the tokenizer has it, and the mean where it is none.
            options: splits, lengths and batches, see `TextData`.

        Raises:
            InputError: a value out of range.
        """
        super().__init__(path, tokenizer, **options)
        self.task = "similarity"
        if not (math.isfinite(scale) and scale > 0):
            raise InputError(f"data.scale is {scale}; expected a number above 0")
        if pooling is not None and pooling not in get_args(Pooling):
            raise InputError(f"data.pooling is {pooling!r}; expected one of {', '.join(get_args(Pooling))}")
        self.text_column, self.pair_column, self.label_column = text_column, pair_column, label_column
        self.scale = scale
        self._pooling = pooling

    @property
    def pooling(self) -> Pooling:
        """The way in which the tokens of a text become one embedding.

        Raises:
            InputError: the tokenizer's folder names one that is not known here.
        """
        if self._pooling is None:
            modules = None if self.tokenizer_source == BYTES else sentence_modules(locate(self.tokenizer_source))
            named = [module.pooling for module in modules or [] if module.kind == "Pooling"]
            if named and named[0] not in (("mean",), ("cls",)):
                raise InputError(
                    f"{self.tokenizer_source} pools tokens by {' and '.join(named[0])}; expected mean or cls, or "
                    f"one of them by data.pooling"
                )
            self._pooling = "cls" if named and named[0] == ("cls",) else "mean"
        return self._pooling

    def columns(self) -> list[str]:
        """Texts and numbers."""
        return [self.text_column, self.pair_column, self.label_column]

    def encoder(self) -> PairEncoder:
        """Tokens of both texts, and the number."""
        return PairEncoder(
            self.tokenizer,
            self.max_length,
            self.source.path,
            self.text_column,
            self.pair_column,
            self.label_column,
            self.scale,
        )

    def collator(self) -> PairCollator:
        """Pads all texts of a batch to the longest."""
        return PairCollator(self.tokenizer)

    def texts(self, split: str) -> list[str]:
        """The texts of a split; pairs are joined by a space."""
        if split not in self.rows:
            return []
        rows = self.rows[split]
        pairs = zip(rows[self.text_column], rows[self.pair_column], strict=True)
        return [f"{first or ''} {second or ''}" for first, second in pairs]


@dataclasses.dataclass(frozen=True)
class PairEncoder(Encoder):
    """The tokens of both texts of each pair, those of the second under names of their own, and its number."""

    path: str
    """Of the data, for messages."""
    first_column: str
    second_column: str
    label_column: str
    scale: float
    """That numbers are divided by."""

    def __call__(self, rows: Columns) -> Columns:
        """Tokens, truncated to the maximal length, and labels."""
        columns: Columns = {}
        for prefix, column in (("", self.first_column), (_SECOND, self.second_column)):
            tokens = self.tokens(texts_of(rows, column), truncation=True, max_length=self.max_length)
            names = [name for name in self.tokenizer.model_input_names if name in tokens]
            columns |= {f"{prefix}{name}": tokens[name] for name in names}
        return columns | {LABELS: [self._label(value) for value in rows[self.label_column]]}

    def _label(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise InputError(
                f"{self.path}: column {self.label_column!r} holds {value!r}, but a number was expected for each pair"
            )
        return value / self.scale


@dataclasses.dataclass(frozen=True)
class PairCollator:
    """Both texts of each pair as two samples of a batch, one after the other, with the label of the pair."""

    tokenizer: PreTrainedTokenizerBase

    def __call__(self, samples: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        names = [name for name in samples[0] if name != LABELS and not name.startswith(_SECOND)]
        texts = [
            {name: sample[f"{prefix}{name}"] for name in names} | {LABELS: sample[LABELS]}
            for sample in samples
            for prefix in ("", _SECOND)
        ]
        return dict(self.tokenizer.pad(texts, return_tensors="pt"))
