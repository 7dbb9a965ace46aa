"""Guesses the data module for a table or folder and the head of a checkpoint, and says in words what was guessed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from datasets import Dataset
from lightning.pytorch import LightningDataModule

from fusionlab.data import columns, labels
from fusionlab.data.choosing import TEST, Use, chosen_splits, conll_files, named
from fusionlab.data.given import Given
from fusionlab.data.images import Images
from fusionlab.data.language_modelling import LanguageModelling
from fusionlab.data.ner import NER
from fusionlab.data.purpose import Head
from fusionlab.data.splits import with_parts
from fusionlab.data.tables import Source, load, require_columns, separator
from fusionlab.data.text_classification import TextClassification
from fusionlab.data.text_to_text import TextToText
from fusionlab.data.tokenizers import load_tokenizer
from fusionlab.errors import InputError
from fusionlab.evaluation.span_f1 import OUTSIDE
from fusionlab.paths import expanded

_WORD_COLUMNS = ("token_column", "tag_column")
_TEXT_COLUMNS = ("text_column", "pair_column", "label_column")


def guessed(given: Given, head: Head, use: Use) -> tuple[LightningDataModule, str]:
    """The data module of some data for a head, and a sentence on what was guessed.

    Args:
        given: what was said.
        head: of a checkpoint.
        use: see `fusionlab.data.choosing`.

    Raises:
        InputError: data that cannot be read, or columns that cannot be guessed; names the option that says them.
    """
    return _Guess(given, head, use).module()


@dataclass
class _Guess:
    """Guesses on some data for a head, and the words for them."""

    data: Given
    head: Head
    use: Use
    split_column: str | None = None
    told: list[str] = field(default_factory=list)
    ways: list[str] = field(default_factory=list)

    def module(self) -> tuple[LightningDataModule, str]:
        kinds = {
            "texts": self._texts,
            "words": self._words,
            "running text": self._running,
            "texts and targets": self._targets,
            "images": self._images,
        }
        try:
            module = kinds[self.head.kind]()
        except InputError as error:
            # Guesses name columns and options, and not the file.
            raise InputError(_naming(self.data.path, str(error))) from error
        ways = f" (otherwise: {', '.join(f'--data.{way}' for way in dict.fromkeys(self.ways))})" if self.ways else ""
        place = expanded(self.data.path)
        described: Any = module
        described.name = place.stem if place.exists() else self.data.path.rsplit("/", maxsplit=1)[-1]
        return module, f"{self.data.path}: {'; '.join(self.told)}{ways}"

    def _texts(self) -> LightningDataModule:
        data, head, given = self.data, self.head, self.data.columns
        rows = self._parts()
        first = next(iter(rows.values()))
        task = data.task or head.task
        source = Source(data.path)
        require_columns(source, first, [str(given[name]) for name in _TEXT_COLUMNS if given.get(name) is not None])
        text, pair = _text(given.get("text_column")), _text(given.get("pair_column"))
        found = self._labels(list(rows.values()), task, (text, pair, self.split_column))
        label = None if found is None else found.column
        if text is None:
            text, guessed = columns.text_columns(first, [label, self.split_column, pair])
            pair = pair or guessed
        self._say(f"text from `{text}`{f' and `{pair}`' if pair else ''}", "text_column")
        if found is not None:
            self._say_labels(found, task)
        splits = self._splits(rows, label)
        classes = None if task == "regression" else list(head.names)
        return TextClassification(
            data.path,
            data.tokenizer or head.tokenizer(),
            task=task,  # type: ignore[arg-type]
            text_column=text,
            pair_column=pair,
            label_column=label,
            labels=classes,
            label_values=None if found is None else found.values,
            **self._text_options(splits),
        )

    def _labels(self, parts: Sequence[Dataset], task: str, taken: tuple[str | None, ...]) -> labels.Labels | None:
        """The column of the labels; None where they are not needed and not found."""
        column, values = _text(self.data.columns.get("label_column")), self.data.label_values
        names, is_named = self.head.names, self.head.is_named
        if column is not None:
            require_columns(Source(self.data.path), parts[0], [column])
        try:
            if values is not None:
                if len(values) != len(names):
                    raise InputError(
                        f"data.label_values has {len(values)} values, and the model's {len(names)} classes are "
                        f"{', '.join(names)}; expected one for each, in this order"
                    )
                if column is None:
                    return labels.column_of_values(parts, values, taken)
                return labels.given_values(parts, column, values)
            if task == "regression":
                return labels.number_column(parts[0]) if column is None else labels.Labels(column)
            if column is not None:
                return labels.labels_in(parts, column, names, is_named)
            return labels.label_column(parts, names, is_named, taken)
        except InputError:
            if self.use == "inputs" and column is None and values is None:
                return None
            raise

    def _words(self) -> LightningDataModule:
        data, given = self.data, self.data.columns
        tags = list(self.head.names)
        place = expanded(data.path)
        options: dict[str, Any] = {name: given[name] for name in _WORD_COLUMNS if given.get(name) is not None}
        if files := conll_files(place):
            self._say("words from the first column of each line, tags from the last", "token_column", "tag_column")
            splits = self._splits(files, None)
        else:
            rows = self._parts()
            words, tagged = columns.word_columns(next(iter(rows.values()))) if len(options) < 2 else (None, None)
            options = {"token_column": words, "tag_column": tagged} | options
            self._say(f"words from `{options['token_column']}`, tags from `{options['tag_column']}`", "token_column")
            splits = self._splits(rows, None)
        module = NER(
            data.path,
            data.tokenizer or self.head.tokenizer(),
            tags=tags,
            **options,
            **self._text_options(splits),
        )
        if self.use != "inputs" and (others := module.other_tags()):
            raise InputError(
                f"{sum(others.values())} words have tags that the model lacks ({columns.shown(sorted(others))}; it has "
                f"{columns.shown(tags)}); expected data with the model's tags, or --data NER, which reads others as "
                f"{OUTSIDE}, with data.path, data.tokenizer and data.tags"
            )
        return module

    def _running(self) -> LightningDataModule:
        data, rows = self.data, self._parts()
        text = _text(data.columns.get("text_column"))
        if text is None:
            text, _ = columns.text_columns(next(iter(rows.values())), [self.split_column])
        self._say(f"text from `{text}`", "text_column")
        return LanguageModelling(
            data.path,
            data.tokenizer or self.head.tokenizer(),
            masked=self.head.task == "masked_lm",
            text_column=text,
            **self._text_options(self._splits(rows, None)),
        )

    def _targets(self) -> LightningDataModule:
        data, rows, given = self.data, self._parts(), self.data.columns
        text, target = _text(given.get("text_column")), _text(given.get("target_column"))
        first = with_parts(next(iter(rows.values())), [name for name in (text, target) if name is not None])
        require_columns(Source(data.path), first, [name for name in (text, target) if name is not None])
        try:
            text, target = columns.target_columns(first, text, target, [self.split_column])
        except InputError:
            if self.use != "inputs" or target is not None:
                raise
            # Where texts are only looked at, a decoder may read the same ones.
            text = text or columns.text_columns(first, [self.split_column])[0]
            target = text
        self._say(f"text from `{text}`, target from `{target}`", "text_column", "target_column")
        tokenizer = data.tokenizer or self.head.tokenizer()
        start = self.head.decoder_start(load_tokenizer(tokenizer).pad_token_id)
        return TextToText(
            data.path,
            tokenizer,
            text_column=text,
            target_column=target,
            prefix=data.prefix,
            decoder_start=start,
            **self._text_options(self._splits(rows, None)),
        )

    def _images(self) -> LightningDataModule:
        data, rows = self.data, self._parts()
        first = next(iter(rows.values()))
        image = _text(data.columns.get("image_column")) or columns.image_column(first)
        found = self._labels(list(rows.values()), "classification", (image, self.split_column))
        label = None if found is None else found.column
        self._say(f"images from `{image}`", "image_column")
        if found is not None:
            self._say_labels(found, self.head.task)
        splits = self._splits(rows, label)
        if splits.pop("test_on_all", False):
            splits["test_split"], splits["train_split"] = splits["train_split"], None
        return Images(
            data.path,
            image_column=image,
            label_column=label,
            label_values=None if found is None else found.values,
            class_names=list(self.head.names),
            augment=False,
            limit=data.limit,
            batch_size=data.batch_size,
            config_name=data.config_name,
            split_column=self.split_column,
            **self.head.image_options(),
            **splits,
        )

    def _say(self, words: str, *ways: str) -> None:
        self.told.append(words)
        # What was given needs no other way to be told.
        self.ways += [way for way in ways if self.data.columns.get(way) is None]

    def _say_labels(self, found: labels.Labels, task: str) -> None:
        classes = columns.shown(self.head.names) if self.head.is_named and task != "regression" else ""
        said = found.told or classes
        self._say(f"label from `{found.column}`{f' ({said})' if said else ''}", "label_column")
        if found.told:
            self.ways.append("label_values")

    def _parts(self) -> dict[str, Dataset]:
        """The splits of the table, by their names in the data."""
        data = self.data
        found = dict(load(Source(data.path, data.config_name), None))
        if not found or not any(len(part) for part in found.values()):
            raise InputError(f"{data.path} holds no rows; expected some")
        whole, place = next(iter(found.values())), expanded(data.path)
        if place.exists() and place.suffix != ".tsv" and (between := separator(place)) not in (None, ","):
            self._say(f"columns divided by {between!r}")
        if data.split_column is not None:
            require_columns(Source(data.path), whole, [data.split_column])
        column = data.split_column or columns.split_column(whole)
        names = [] if column is None else [str(name) for name in whole.unique(column)]
        if column is None or (data.split_column is None and (len(found) > 1 or named(names, TEST) is None)):
            return found
        self.split_column = column
        if data.split_column is None:
            self._say(f"splits from `{column}`")
            self.ways.append("split_column")
        return dict.fromkeys(names, whole)

    def _splits(self, parts: Mapping[str, Any], label: str | None) -> dict[str, Any]:
        """The splits to use, as options of a data module."""
        data = self.data
        chosen = chosen_splits(
            parts, self.use, label, data.train_split, data.test_split, data.test_size, data.val_split, data.val_size
        )
        self.told += chosen.told
        self.ways += chosen.ways
        return dict(chosen.options)

    def _text_options(self, splits: dict[str, Any]) -> dict[str, Any]:
        data = self.data
        return {
            "max_length": data.max_length or self.head.max_length(),
            "batch_size": data.batch_size,
            "eval_batch_size": data.batch_size,
            "limit": data.limit,
            "config_name": data.config_name,
            "split_column": self.split_column,
            **splits,
        }


def _text(column: object) -> str | None:
    return None if column is None else str(column)


def _naming(path: str, words: str) -> str:
    return words if path in words else f"{path}: {words}"
