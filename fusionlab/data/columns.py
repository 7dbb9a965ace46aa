"""Guesses what the columns of a table hold, by their names and types; of labels see `fusionlab.data.labels`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from datasets import Dataset, Image, List, Value

from fusionlab.errors import InputError

TEXT = (
    "text", "sentence", "review", "content", "body", "comment", "tweet", "message", "utterance", "document", "article",
    "abstract", "title", "question", "prompt", "input",
)  # fmt: skip
PAIRS = (
    ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("question", "sentence"),
    ("text1", "text2"), ("text_a", "text_b"), ("sentence_a", "sentence_b"), ("text", "text_pair"),
    ("question", "context"), ("question", "answer"), ("query", "passage"),
)  # fmt: skip
TARGETS = (
    "target", "target_text", "targets", "tgt", "summary", "highlights", "output", "output_text", "completion",
    "response", "answer", "headline",
)  # fmt: skip
SOURCES = ("source", "src", "input_text", "inputs", "dialogue", "instruction")
QUESTIONS, CONTEXTS = ("question", "query"), ("context", "passage", "paragraph", "document", "text", "story")
ANSWERS, STARTS = ("answers", "answer", "answer_text"), ("answer_start", "start", "answer_starts")
IMAGE = ("image", "img", "picture", "photo", "file", "path", "file_name", "filename")
WORDS, TAGS = ("tokens", "words"), ("ner_tags", "tags", "ner", "labels", "pos_tags", "chunk_tags", "tag")
SPLIT = ("split", "fold", "partition")
_SHOWN = 6


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
        raise InputError(f"no column holds texts ({listed(rows)}); expected data.text_column, one of them")
    return max(texts, key=lambda name: _mean_length(rows, name)), None


def pair_columns(
    rows: Dataset, first: str | None = None, second: str | None = None, taken: Iterable[str | None] = ()
) -> tuple[str, str]:
    """The columns of two texts that are held against each other.

    Args:
        rows: a table.
        first: one of them, where it is known.
        second: the other, where it is known.
        taken: columns that hold something else.

    Raises:
        InputError: no names tell them, and there are not just two columns of texts.
    """
    known = {first, second, *taken}
    texts = [name for name in rows.column_names if name not in known and _is_text(rows.features[name])]
    if first is None and second is None and texts:
        text, pair = text_columns(rows, taken)
        if pair is not None:
            return text, pair
    missing = [first, second].count(None)
    if len(texts) != missing and missing:
        raise InputError(
            f"which columns hold the two texts of a pair is not clear ({listed(rows)}); expected data.text_column and "
            f"data.pair_column, two of them"
        )
    rest = iter(texts)
    return first or next(rest), second or next(rest)


def target_columns(
    rows: Dataset, text: str | None = None, target: str | None = None, taken: Iterable[str | None] = ()
) -> tuple[str, str]:
    """The column of the texts, and of the texts that are to be made of them.

    Args:
        rows: a table.
        text: that of the texts, where it is known.
        target: that of their targets, where it is known.
        taken: columns that hold something else.

    Raises:
        InputError: no names tell them, and there are not just two columns of texts.
    """
    known = {text, target, *taken}
    texts = [name for name in rows.column_names if name not in known and _is_text(rows.features[name])]
    names = {name.lower(): name for name in reversed(texts)}
    named = next((names[name] for name in TARGETS if name in names), None)
    if target is None and (named is not None or len(texts) == (text is None) + 1):
        target = named or texts[-1]
    rest = [name for name in texts if name != target]
    if text is None and target is not None and rest:
        text = next((names[name] for name in (*SOURCES, *TEXT) if names.get(name) in rest), None)
        text = text or (rest[0] if len(rest) == 1 else None)
    if text is None or target is None:
        raise InputError(
            f"no columns tell texts from what is to be made of them ({listed(rows)}); expected data.text_column and "
            f"data.target_column, two of them"
        )
    return text, target


class AnswerColumns(NamedTuple):
    """Columns of questions, of the texts with their answers, and of these; None for what the table does not have."""

    question: str
    context: str
    answer: str | None
    start: str | None


def answer_columns(
    rows: Dataset,
    question: str | None = None,
    context: str | None = None,
    answer: str | None = None,
    *,
    taken: Iterable[str | None] = (),
    are_needed: bool = True,
) -> AnswerColumns:
    """The columns of questions, contexts and answers, and of the places where these begin.

    Args:
        rows: a table.
        question: that of the questions, where it is known.
        context: that of the texts which hold the answers, where it is known.
        answer: that of the answers, where it is known.
        taken: columns that hold something else.
        are_needed: whether the answers must be there.

    Raises:
        InputError: no names tell them.
    """
    known = {question, context, answer, *taken}
    names = {name.lower(): name for name in reversed(rows.column_names) if name not in known}
    texts = {key: name for key, name in names.items() if _is_text(rows.features[name])}
    question = question or next((texts[name] for name in QUESTIONS if name in texts), None)
    context = context or next((texts[name] for name in CONTEXTS if name in texts), None)
    if question is None or context is None:
        raise InputError(
            f"no columns are called as questions and the texts that hold their answers are ({listed(rows)}); expected "
            f"data.text_column (the questions) and data.pair_column (the texts), two of them"
        )
    answer = answer or next((names[name] for name in ANSWERS if name in names), None)
    if answer is None and are_needed:
        raise InputError(f"no column holds answers ({listed(rows)}); expected data.label_column, one of them")
    held = None if answer is None else rows.features[answer]
    is_plain = _is_text(getattr(held, "feature", held))  # a text, or several
    start = next((names[name] for name in STARTS if name in names), None) if is_plain else None
    return AnswerColumns(question, context, answer, start)


def image_column(rows: Dataset) -> str:
    """The column of the images: of the library's own type, encoded, or paths of files.

    Raises:
        InputError: there is none.
    """
    typed = [name for name in rows.column_names if isinstance(rows.features[name], Image)]
    names = {name.lower(): name for name in reversed(rows.column_names)}
    named = [names[name] for name in IMAGE if name in names]
    if not typed and not named:
        raise InputError(f"no column holds images ({listed(rows)}); expected data.image_column, one of them")
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
            f"no two columns hold lists of words and of their tags ({listed(rows)}); expected data.token_column and "
            f"data.tag_column"
        )
    return words[0], tags[0]


def split_column(rows: Dataset) -> str | None:
    """The column that names the split of each row; None where there is none."""
    names = {name.lower(): name for name in rows.column_names if _is_text(rows.features[name])}
    return next((names[name] for name in SPLIT if name in names), None)


def _is_text(feature: Any) -> bool:
    return isinstance(feature, Value) and feature.dtype in ("string", "large_string")


def _mean_length(rows: Dataset, column: str) -> float:
    texts = rows.select(range(min(len(rows), 100)))[column]
    return sum(len(text or "") for text in texts) / max(len(texts), 1)


def listed(rows: Dataset) -> str:
    """The columns of a table in a sentence.

    Args:
        rows: the table.
    """
    return f"columns: {', '.join(rows.column_names) or 'none'}"


def shown(values: Iterable[str]) -> str:
    """Some names in a sentence: the first six, and how many more there are.

    Args:
        values: names.
    """
    found = list(values)
    return ", ".join(found[:_SHOWN]) + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
