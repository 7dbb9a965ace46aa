"""Questions on a text that holds their answers word for word, for models that say where an answer begins and ends."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from fusionlab.data.encoding import Columns, Encoder, texts_of
from fusionlab.data.text import TextData
from fusionlab.errors import InputError
from fusionlab.forward import IGNORED, LABELS

TEXT, START = "text", "answer_start"
# Which of the two texts a token is of, as tokenizers number them.
_CONTEXT = 1
# The first and the one behind the last character of an answer in its context.
Span = tuple[int, int]
_NONE: Span = (0, 0)


@dataclasses.dataclass(frozen=True)
class QuestionEncoder(Encoder):
    """Tokens of questions and their contexts; as labels the first and the last token of each answer."""

    path: str
    """Of the data, for messages."""
    question_column: str
    context_column: str
    answer_column: str | None
    """None for questions without answers."""
    start_column: str | None
    """The place of each answer in its context, in characters; None where the answers say so themselves."""

    def __call__(self, rows: Columns) -> Columns:
        """One sample for each row; an answer that was cut off with the end of its context is unknown."""
        questions, contexts = self._short(texts_of(rows, self.question_column)), texts_of(rows, self.context_column)
        tokens = self.tokens(
            questions, contexts, truncation="only_second", max_length=self.max_length, return_offsets_mapping=True
        )
        found: Columns = {name: tokens[name] for name in self.tokenizer.model_input_names if name in tokens}
        if self.answer_column is None:
            return found
        starts = [None] * len(contexts) if self.start_column is None else rows[self.start_column]
        answers = zip(rows[self.answer_column], starts, contexts, strict=True)
        spans = [self._span(answer, start, context) for answer, start, context in answers]
        return found | {LABELS: [self._places(tokens, row, span) for row, span in enumerate(spans)]}

    def _short(self, questions: list[str]) -> list[str]:
        """Questions with at most half of all tokens but special ones, so that something is left of each context.

        Raises:
            InputError: too few tokens for any.
        """
        special = self.tokenizer.num_special_tokens_to_add(pair=True)
        most = (self.max_length - special) // 2
        if most < 1:
            raise InputError(
                f"data.max_length is {self.max_length}, but a question and its context need at least {special + 2}"
            )
        offsets = self.tokens(questions, return_offsets_mapping=True, add_special_tokens=False)["offset_mapping"]
        ends = [of_one[most - 1][1] if len(of_one) > most else None for of_one in offsets]
        return [question[:end] for question, end in zip(questions, ends, strict=True)]

    def _span(self, answer: Any, start: Any, context: str) -> Span:
        """The place of an answer in its context, without spaces around it; `_NONE` where there is none.

        Raises:
            InputError: no answer, or one that the context does not hold.
        """
        text = answer
        if isinstance(answer, dict):
            text, start = (_first(answer.get(name)) for name in (TEXT, START))
        elif isinstance(answer, list):
            first = answer[0] if answer else None
            text, start = (first.get(TEXT), first.get(START)) if isinstance(first, dict) else (first, _first(start))
        if text is None or not str(text).strip():
            return _NONE
        if isinstance(text, int) and not isinstance(text, bool):
            text = str(text)  # of a column in which all answers are whole numbers
        if not isinstance(text, str):
            raise InputError(
                f"{self.path}: column {self.answer_column!r} holds {str(answer)[:100]!r}, but an answer was "
                f"expected: a text, or {TEXT} and {START}"
            )
        place = max(0, int(start)) if isinstance(start, int | float) and math.isfinite(start) else 0
        if context[place : place + len(text)] != text:
            # Counted in other characters, or not at all: the nearest place where it stands.
            after, before = context.find(text, place), context.rfind(text, 0, place + len(text))
            places = [one for one in (before, after) if one >= 0]
            if not places:
                raise InputError(
                    f"{self.path}: the answer {text[:100]!r} does not stand in its context ({context[:60]!r}...); "
                    f"expected a part of it, word for word"
                )
            place = min(places, key=lambda one: abs(one - place))
        return place + len(text) - len(text.lstrip()), place + len(text.rstrip())

    def _places(self, tokens: Any, row: int, span: Span) -> list[int]:
        """The first and the last token of an answer, see `place_of_none`; -100 where it was cut off, be it in part."""
        if span == _NONE:
            return [place_of_none(tokens["input_ids"][row], self.tokenizer)] * 2
        of_context = [place for place, part in enumerate(tokens.sequence_ids(row)) if part == _CONTEXT]
        offsets = tokens["offset_mapping"][row]
        inside = [place for place in of_context if offsets[place][0] < span[1] and offsets[place][1] > span[0]]
        if not inside:
            return [IGNORED, IGNORED]
        first, last = inside[0], inside[-1]
        # Letters that are no part of any token, such as spaces of no width, are missing inside a context too.
        is_cut = (first == of_context[0] and offsets[first][0] > span[0]) or (
            last == of_context[-1] and offsets[last][1] < span[1]
        )
        return [IGNORED, IGNORED] if is_cut else [first, last]


def place_of_none(tokens: Sequence[int], tokenizer: PreTrainedTokenizerBase | None) -> int:
    """The place of the token that stands for no answer: the classifying one, or the first.

    Args:
        tokens: of a question and its context.
        tokenizer: of them; if None, the first stands for it.
    """
    whole: Any = None if tokenizer is None else tokenizer.cls_token_id
    return tokens.index(whole) if whole in tokens else 0


class QuestionAnswering(TextData):
    """Questions, contexts and answers that stand in them (Rajpurkar et al., "SQuAD", 2016), from any table.

    Batches hold what the tokenizer gives for question and context, each of shape ``(batch, tokens)``, and ``labels`` of
    shape ``(batch, 2)``: the first and the last token of the answer. Both are the classifying token (the first, where
    the tokenizer has none) where the context holds no answer, as SQuAD 2 has it. A context is cut where it is too long;
    an answer that is cut off with it, be it in part, is unknown: its labels are -100. Rows are padded behind their end.
    """

    def __init__(
        self,
        path: str,
        tokenizer: str,
        *,
        question_column: str = "question",
        context_column: str = "context",
        answer_column: str | None = "answers",
        start_column: str | None = None,
        max_length: int = 384,
        **options: Any,
    ) -> None:
        """Say where the questions are and which columns hold what.

        Args:
            path: a hub id, a folder of data files, or one file (Parquet, JSONL, CSV, Arrow).
            tokenizer: checkpoint folder or hub id that the tokenizer is read from; ``bytes`` for one token a byte.
            question_column: column of the questions.
            context_column: column of the texts that hold the answers.
            answer_column: column of the answers: each a text, or ``text`` and ``answer_start`` as SQuAD has them, of
                which the first of several counts; empty or missing where the context holds none. Null for questions
                without answers, which can be looked at but not measured on.
            start_column: column with the place of each answer in its context, in characters; if null, what the answers
                say, or the first place where they stand.
            max_length: most tokens of question and context together, special ones included.
            options: splits and batches, see `TextData`.

        Raises:
            InputError: a value out of range.
        """
        super().__init__(path, tokenizer, max_length=max_length, **options)
        self.task = "question_answering"
        self.class_names = None
        self.question_column, self.context_column = question_column, context_column
        self.answer_column, self.start_column = answer_column, start_column

    def columns(self) -> list[str]:
        """Questions, contexts and answers."""
        every = (self.question_column, self.context_column, self.answer_column, self.start_column)
        return [name for name in every if name is not None]

    def encoder(self) -> QuestionEncoder:
        """Tokens, and where the answers are."""
        return QuestionEncoder(
            self.tokenizer,
            self.max_length,
            self.source.path,
            self.question_column,
            self.context_column,
            self.answer_column,
            self.start_column,
        )

    def collator(self) -> Any:
        """Pads behind the end, whatever the tokenizer does by itself: labels count from the beginning."""
        return functools.partial(self.tokenizer.pad, return_tensors="pt", padding_side="right")

    def texts(self, split: str) -> list[str]:
        """The questions of a split, each with its context behind a space."""
        if split not in self.rows:
            return []
        columns: Sequence[Any] = [self.rows[split][name] for name in (self.question_column, self.context_column)]
        return [f"{question or ''} {context or ''}" for question, context in zip(*columns, strict=True)]


def _first(value: Any) -> Any:
    """The first of several values; None of none."""
    if isinstance(value, list):
        return value[0] if value else None
    return value
