"""Turning words with tags into sub-words with labels, without losing a word."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, Literal

from fusionlab.data.encoding import Columns, Encoder
from fusionlab.errors import InputError
from fusionlab.evaluation.span_f1 import OUTSIDE, is_iob2
from fusionlab.forward import IGNORED, LABELS

LongSentences = Literal["split", "refuse"]


@dataclasses.dataclass(frozen=True)
class WordEncoder(Encoder):
    """Sentences of words with a tag each; a label stands at the first sub-word of each word, -100 elsewhere."""

    path: str
    """Of the data, for messages."""
    token_column: str
    tag_column: str
    names: tuple[str, ...]
    """The tags in the order of the labels."""
    mapping: tuple[tuple[str, str], ...]
    """Types in the data and the types that they become."""
    tag_names: tuple[str, ...] | None
    """Names of the tags where the data holds numbers."""
    long_sentences: LongSentences

    def __call__(self, rows: Columns) -> Columns:
        """Windows of sub-words, each of at most the maximal length, and their labels."""
        windows: list[tuple[list[str], list[str]]] = []
        for words, tags in zip(rows[self.token_column], rows[self.tag_column], strict=True):
            self._refuse_odd(words, tags)
            if len(words) != len(tags):
                raise InputError(f"{self.path}: a sentence of {len(words)} words has {len(tags)} tags")
            if words:
                readable, lengths = self._readable(words)
                named = [self._named(tag) for tag in tags]
                windows += self._windows(readable, lengths, iob2(named, dict(self.mapping), self.names))
        return self._tokens(windows)

    def _refuse_odd(self, words: object, tags: object) -> None:
        """Refuse a row that is no sentence: tables hold anything."""
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise InputError(
                f"{self.path}: column {self.token_column!r} holds {_short(words)}; expected lists of words"
            )
        if not isinstance(tags, list):
            raise InputError(f"{self.path}: column {self.tag_column!r} holds {_short(tags)}; expected lists of tags")

    def _named(self, tag: Any) -> Any:
        """The name of a tag where the data gives names to its numbers."""
        if self.tag_names is None:
            return tag
        if not isinstance(tag, int) or not 0 <= tag < len(self.tag_names):
            raise InputError(
                f"{self.path}: column {self.tag_column!r} holds the tag {tag!r}; expected numbers from 0 to "
                f"{len(self.tag_names) - 1}"
            )
        return self.tag_names[tag]

    def _tokens(self, windows: Sequence[tuple[list[str], list[str]]]) -> Columns:
        # Only a single word that is longer than a whole window is cut, behind its first sub-word.
        tokens = self.tokens(
            [words for words, _ in windows], is_split_into_words=True, truncation=True, max_length=self.max_length
        )
        labels = []
        for index, (_, tags) in enumerate(windows):
            places = [None, *tokens.word_ids(index)]
            labels.append(
                [
                    IGNORED if word is None or word == before else self.names.index(tags[word])
                    for before, word in itertools.pairwise(places)
                ]
            )
        return {name: tokens[name] for name in self.tokenizer.model_input_names if name in tokens} | {LABELS: labels}

    def _readable(self, words: Sequence[str]) -> tuple[list[str], list[int]]:
        """The words, unknown ones in place of those that would leave no token (a lone accent), and their lengths."""
        lengths = self._lengths(words)
        if 0 in lengths:
            stand_in = self.tokenizer.unk_token or "?"
            words = [word if length else stand_in for word, length in zip(words, lengths, strict=True)]
            lengths = self._lengths(words)
        return list(words), lengths

    def _lengths(self, words: Sequence[str]) -> list[int]:
        tokens = self.tokens(list(words), is_split_into_words=True, add_special_tokens=False)
        lengths = [0] * len(words)
        for word in tokens.word_ids():
            if word is not None:
                lengths[word] += 1
        return lengths

    def _windows(self, words: list[str], lengths: list[int], tags: list[str]) -> list[tuple[list[str], list[str]]]:
        room = self.max_length - self.tokenizer.num_special_tokens_to_add()
        if sum(lengths) <= room:
            return [(words, tags)]
        if self.long_sentences == "refuse":
            raise InputError(
                f"{self.path}: the sentence {' '.join(words[:5])!r} ... has {sum(lengths)} sub-words, but "
                f"data.max_length leaves room for {room}; expected a larger one, or long_sentences: split"
            )
        found, start = [], 0
        while start < len(words):
            end, size = start, 0
            while end < len(words) and (end == start or size + lengths[end] <= room):
                size += lengths[end]
                end += 1
            # Back to the last word that begins something, so that no entity is cut in two.
            whole = end
            while whole < len(words) and whole > start and tags[whole].startswith("I-"):
                whole -= 1
            end = whole if whole > start else end
            # What is left of an entity that does not fit counts as one of its own.
            first = tags[start].replace("I-", "B-", 1) if tags[start].startswith("I-") else tags[start]
            found.append((words[start:end], [first, *tags[start + 1 : end]]))
            start = end
        return found


def _short(value: object) -> str:
    return repr(value)[:100]


def iob2(tags: Sequence[str | int], mapping: dict[str, str], names: Sequence[str]) -> list[str]:
    """Tags in IOB2 with the chosen types only.

    Args:
        tags: ``O``, ``B-`` or ``I-`` and a type; an ``I-`` that continues nothing begins an entity. Numbers that the
            data give no names to are refused.
        mapping: types that get another name.
        names: tags that there are to be; other types become ``O``.

    Returns:
        As many tags.

    Raises:
        InputError: something that is no such tag.
    """
    found, before = [], OUTSIDE
    for tag in tags:
        if not isinstance(tag, str) or not is_iob2(tag):
            raise InputError(f"the data holds the tag {tag!r}, but O, B-TYPE or I-TYPE was expected")
        prefix, _, kind = tag.partition("-")
        if prefix == "I" and before.partition("-")[2] != kind:
            prefix = "B"
        named = f"{prefix}-{mapping.get(kind, kind)}"
        found.append(named if tag != OUTSIDE and named in names else OUTSIDE)
        before = tag
    return found
