"""The predictions of models, as rows of a table: the header first, then one row for each sample."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

SAMPLE, PREDICTED = "sample", "predicted"


def class_rows(batches: Sequence[Tensor], class_names: Sequence[str] | None) -> Iterator[list[Any]]:
    """The most probable class and the probability of every class.

    Args:
        batches: probabilities, each of shape ``(batch, classes)``.
        class_names: in order; numbers where there are none.
    """
    names = _names(batches, class_names)
    yield [SAMPLE, PREDICTED, *names]
    for sample, row in _numbered(batches):
        yield [sample, names[row.index(max(row))], *map(_number, row)]


def label_rows(batches: Sequence[Tensor], class_names: Sequence[str] | None, threshold: float) -> Iterator[list[Any]]:
    """All labels at or above a threshold, separated by spaces, and the probability of every label.

    Args:
        batches: probabilities, each of shape ``(batch, classes)``.
        class_names: in order; numbers where there are none.
        threshold: probability from which on a label is predicted.
    """
    names = _names(batches, class_names)
    yield [SAMPLE, PREDICTED, *names]
    for sample, row in _numbered(batches):
        chosen = [name for name, value in zip(names, row, strict=True) if value >= threshold]
        yield [sample, " ".join(chosen), *map(_number, row)]


def number_rows(batches: Sequence[Tensor], *columns: str) -> Iterator[list[Any]]:
    """Numbers as they are.

    Args:
        batches: each of shape ``(batch, columns)``.
        columns: what they are.
    """
    yield [SAMPLE, *columns]
    for sample, row in _numbered(batches):
        yield [sample, *map(_number, row)]


def text_rows(batches: Sequence[tuple[Sequence[str], Tensor]]) -> Iterator[list[Any]]:
    """The text of each sample, and the loss of the one that was expected.

    Args:
        batches: texts, and losses of shape ``(batch,)``.
    """
    return _texts_with_numbers(batches, "loss")


def answer_rows(batches: Sequence[tuple[Sequence[str], Tensor]]) -> Iterator[list[Any]]:
    """The answer of each sample, and its probability.

    Args:
        batches: answers, and probabilities of shape ``(batch,)``.
    """
    return _texts_with_numbers(batches, "probability")


def _texts_with_numbers(batches: Sequence[tuple[Sequence[str], Tensor]], column: str) -> Iterator[list[Any]]:
    yield [SAMPLE, PREDICTED, column]
    rows = ((text, value) for texts, values in batches for text, value in zip(texts, values.tolist(), strict=True))
    for sample, (text, value) in enumerate(rows):
        yield [sample, text, _number(value)]


def tag_rows(batches: Sequence[Sequence[Tensor]], class_names: Sequence[str]) -> Iterator[list[Any]]:
    """One row for each word: the sentence's number, the word's, its tag.

    Args:
        batches: class numbers of the words of each sentence, each of shape ``(words,)``.
        class_names: the tags in order.
    """
    yield [SAMPLE, "word", PREDICTED]
    for sample, words in enumerate(itertools.chain.from_iterable(batches)):
        for word, index in enumerate(words.tolist()):
            yield [sample, word, class_names[index]]


def _names(batches: Sequence[Tensor], class_names: Sequence[str] | None) -> list[str]:
    names = list(class_names or [])
    return names + [str(index) for index in range(len(names), batches[0].shape[-1])]


def _numbered(batches: Sequence[Tensor]) -> Iterator[tuple[int, list[float]]]:
    return enumerate(row for batch in batches for row in batch.tolist())


def _number(value: float) -> str:
    return f"{value:.6g}"
