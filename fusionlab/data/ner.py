"""Named entities: words with IOB2 tags, from CoNLL columns, Parquet and other files, or the hub."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import ClassLabel, Dataset, Features, List, Value
from torch import Tensor

from fusionlab.data.choosing import LINES
from fusionlab.data.splits import named_splits
from fusionlab.data.tables import FILE_BUILDERS, generated, require_columns
from fusionlab.data.text import TextData, token_collator
from fusionlab.data.word_encoding import LongSentences, WordEncoder, iob2
from fusionlab.errors import InputError
from fusionlab.evaluation.span_f1 import OUTSIDE
from fusionlab.forward import LABELS
from fusionlab.paths import expanded

TYPES = ["PER", "LOC", "ORG"]
"""The types that the paper's experiments keep."""
_FEATURES = Features({"tokens": List(Value("string")), "ner_tags": List(Value("string"))})


class NER(TextData):
    """Sentences as words with a tag each; labels stand at the first sub-word of each word, -100 elsewhere.

    Read are tables with a column of words and one of tags (names, or the hub's numbers with names), and files of CoNLL
    columns (one word a line, an empty line between sentences). Tags are brought to IOB2: an ``I-`` that continues
    nothing begins an entity, as older files have it. No word is lost: a sentence that is too long is split between
    words, not within an entity where that can be helped, or refused.
    """

    task = "tokens"
    words = True

    def __init__(
        self,
        path: str,
        tokenizer: str,
        *,
        types: list[str] = TYPES,
        tags: list[str] | None = None,
        mapping: dict[str, str] | None = None,
        genre: str | None = None,
        genre_column: str = "genre",
        token_column: str | int = "tokens",
        tag_column: str | int = "ner_tags",
        long_sentences: LongSentences = "split",
        val_split: str | None = "validation",
        **options: Any,
    ) -> None:
        """Say where the sentences are and which types of entities count.

        Args:
            path: a hub id, a data file, a CoNLL file, or a folder in which the splits are names of CoNLL files. A
                CoNLL file by itself is one training split, whatever the splits are called: `val_size` and `test_size`
                hold some of it out, `test_on_all` tests on all of it.
            tokenizer: checkpoint folder or hub id that the tokenizer is read from; ``bytes`` for one token a byte.
            types: types of entities, in the order of the labels: ``O``, ``B-`` and ``I-`` of each.
            tags: in place of `types`: all tags in the order of the labels, as a checkpoint may have them in any order.
            mapping: other names of the types in the data, such as ``{person: PER, GPE: LOC}``. Types that are neither
                here nor in `types` are dropped: their words are tagged ``O``.
            genre: read only sentences of this genre.
            genre_column: column that names each sentence's genre.
            token_column: column of the words; in CoNLL files its number, from 0 or from the end (-1).
            tag_column: column of the tags; in CoNLL files its number.
            long_sentences: ``split`` sentences longer than `max_length`, or ``refuse`` them.
            val_split: name of the validation split; held out if null and `val_size` is not 0.
            options: splits, lengths and batches, see `TextData`.

        Raises:
            InputError: a value out of range.
        """
        super().__init__(path, tokenizer, val_split=val_split, **options)
        if long_sentences not in ("split", "refuse"):
            raise InputError(f"data.long_sentences is {long_sentences!r}, but split or refuse was expected")
        self.mapping = mapping or {}
        types = types if tags is None else sorted({tag.partition("-")[2] for tag in tags if tag != OUTSIDE})
        if tags is not None and OUTSIDE not in tags:
            raise InputError(f"data.tags is {', '.join(tags)}; expected {OUTSIDE} and tags of entities, such as B-PER")
        if unknown := [kind for kind in self.mapping.values() if kind not in types]:
            raise InputError(f"data.mapping leads to {unknown[0]!r}, which is not one of data.types")
        self.class_names = (
            list(tags) if tags is not None else [OUTSIDE, *(f"{prefix}-{kind}" for kind in types for prefix in "BI")]
        )
        self.genre, self.genre_column = genre, genre_column
        self.token_column, self.tag_column = token_column, tag_column
        self.long_sentences: LongSentences = long_sentences
        if genre is not None:
            self.name = f"{self.name}_{genre}"

    @property
    def conll(self) -> bool:
        """True where the data are CoNLL files."""
        location = expanded(self.source.path)
        if location.is_dir():
            return any(name is not None and _file_of(location, name) for name in self.splits.names.values())
        return location.is_file() and location.suffix not in {*FILE_BUILDERS} - {".txt", ".tsv"}

    def columns(self) -> list[str]:
        """Words, tags, and genres where one is asked for."""
        if self.conll:
            return list(_FEATURES)
        return [str(self.token_column), str(self.tag_column), *([] if self.genre is None else [self.genre_column])]

    def read(self) -> dict[str, Dataset]:
        """The splits, of the genre that is asked for."""
        rows = self._conll() if self.conll else named_splits(self.source, self.splits.names, self.columns())
        if self.genre is None:
            return rows
        kept = {}
        for use, part in rows.items():
            require_columns(self.source, part, [self.genre_column])
            chosen = np.flatnonzero(np.asarray(part[self.genre_column][:], dtype=object) == self.genre)
            if not len(chosen):
                present = ", ".join(sorted(set(map(str, part[self.genre_column]))))
                raise InputError(f"{self.source.path} has no {use} sentence of genre {self.genre!r}, only {present}")
            kept[use] = part.select(chosen)
        return kept

    def _conll(self) -> dict[str, Dataset]:
        location, columns = expanded(self.source.path), (self.token_column, self.tag_column)
        word, tag = [c if isinstance(c, int) else place for c, place in zip(columns, (0, -1), strict=True)]

        def sentences(file: Path) -> Dataset:
            return generated(_conll_sentences, _FEATURES, [file], word_column=word, tag_column=tag)

        if location.is_file():
            return {"train": sentences(location)}
        rows = {}
        for use, name in self.splits.names.items():
            if name is None:
                continue
            file = _file_of(location, name)
            if file is None:
                raise InputError(f"{location} has no file {name!r} for the {use} split")
            rows[use] = sentences(file)
        return rows

    def encoder(self) -> WordEncoder:
        """Tokens, and a label at the first sub-word of each word."""
        token_column, tag_column = self.columns()[:2]
        feature = next(iter(self.rows.values())).features[tag_column]
        numbers = getattr(feature, "feature", None)
        return WordEncoder(
            self.tokenizer,
            self.max_length,
            self.source.path,
            token_column,
            tag_column,
            tuple(self.class_names),
            tuple(sorted(self.mapping.items())),
            tuple(numbers.names) if isinstance(numbers, ClassLabel) else None,
            self.long_sentences,
        )

    def other_tags(self) -> Counter[str]:
        """The number of words with each tag, in IOB2, that the data has and the labels lack.

        Such words are read as outside of all entities. Types that `mapping` renames count under their new name.

        Raises:
            InputError: data that cannot be read, or tags that are none.
        """
        counted: Counter[str] = Counter()
        for part in self.read().values():
            column = self.columns()[1]
            numbers = getattr(part.features[column], "feature", None)
            for sentence in part[column]:
                tags = [numbers.int2str(tag) if isinstance(numbers, ClassLabel) else tag for tag in sentence]
                kinds = {str(tag).partition("-")[2] for tag in tags}
                every = [f"{prefix}-{self.mapping.get(kind, kind)}" for kind in kinds for prefix in "BI"]
                counted.update(iob2(tags, self.mapping, every))
        return Counter({tag: count for tag, count in counted.items() if tag not in self.class_names})

    def collator(self) -> Any:
        """Pads labels with -100."""
        return token_collator(self.tokenizer)

    def texts(self, split: str) -> list[str]:
        """The sentences of a split, words joined by spaces."""
        return [" ".join(words) for words in self._sentences(split)]

    def word_counts(self, split: str) -> list[int]:
        """The number of words of each sentence, before long ones are split; empty where there is no such split."""
        return [len(words) for words in self._sentences(split)]

    def _sentences(self, split: str) -> Sequence[Sequence[str]]:
        return self.rows[split][self.columns()[0]] if split in self.rows else ()

    def label_counts(self) -> Tensor:
        """The number of training words with each tag, shape ``(tags,)``."""
        self._load()
        labels = torch.tensor([label for row in self._encoded["train"][LABELS] for label in row if label >= 0])
        return torch.bincount(labels, minlength=len(self.class_names))


def _file_of(folder: Path, name: str) -> Path | None:
    """The CoNLL file of a split, which has its name or also an ending of such files; None where there is none."""
    endings = ("", *(ending for ending in LINES if ending != ".tsv"))
    return next((file for ending in endings if (file := folder / f"{name}{ending}").is_file()), None)


def _conll_sentences(
    stamps: tuple[tuple[str, int, int], ...], word_column: int, tag_column: int
) -> Iterator[dict[str, list[str]]]:
    ((path, _, _),) = stamps
    words: list[str] = []
    tags: list[str] = []
    with Path(path).open(encoding="utf-8") as file:
        for number, line in enumerate([*file, ""], 1):
            columns = line.split()
            if columns and columns[0] == "-DOCSTART-":
                continue
            if columns:
                try:
                    words.append(columns[word_column])
                    tags.append(columns[tag_column])
                except IndexError as error:
                    raise InputError(f"{path}, line {number}: it has only {len(columns)} columns") from error
            elif words:
                yield {"tokens": words, "ner_tags": tags}
                words, tags = [], []
