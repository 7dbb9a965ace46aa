"""Guesses the data module for a table or folder and the head of a checkpoint, and says in words what was guessed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lightning.pytorch import LightningDataModule

from fusionlab.data import columns, labels
from fusionlab.data.choosing import Use, conll_files
from fusionlab.data.class_names import named_classes
from fusionlab.data.embedding_similarity import EmbeddingSimilarity
from fusionlab.data.given import Given
from fusionlab.data.guess import Guess
from fusionlab.data.images import Images
from fusionlab.data.language_modelling import LanguageModelling
from fusionlab.data.ner import NER
from fusionlab.data.purpose import Head, Kind
from fusionlab.data.question_answering import QuestionAnswering
from fusionlab.data.splits import with_parts
from fusionlab.data.tables import Source, require_columns
from fusionlab.data.text_classification import TextClassification
from fusionlab.data.text_to_text import TextToText
from fusionlab.data.tokenizers import load_tokenizer
from fusionlab.data.zero_shot_images import TEMPLATE, ZeroShotImages
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
    guess = Guess(given, head, use)
    try:
        module: Any = _KINDS[head.kind](guess)
    except InputError as error:
        # Guesses name columns and options, and not the file.
        raise InputError(_naming(given.path, str(error))) from error
    place = expanded(given.path)
    module.name = place.stem if place.exists() else given.path.rsplit("/", maxsplit=1)[-1]
    return module, guess.sentence()


def _texts(guess: Guess) -> LightningDataModule:
    data, head, given = guess.data, guess.head, guess.data.columns
    rows = guess.parts()
    first = next(iter(rows.values()))
    task = data.task or head.task
    source = Source(data.path)
    require_columns(source, first, [str(given[name]) for name in _TEXT_COLUMNS if given.get(name) is not None])
    text, pair = guess.column("text_column"), guess.column("pair_column")
    found = guess.label_column(list(rows.values()), task, (text, pair, guess.split_column))
    label = None if found is None else found.column
    if text is None:
        text, guessed = columns.text_columns(first, [label, guess.split_column, pair])
        pair = pair or guessed
    guess.say(f"text from `{text}`{f' and `{pair}`' if pair else ''}", "text_column")
    if found is not None:
        guess.say_labels(found, task)
    splits = guess.splits(rows, label)
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
        **guess.text_options(splits),
    )


def _words(guess: Guess) -> LightningDataModule:
    data, given = guess.data, guess.data.columns
    tags = list(guess.head.names)
    place = expanded(data.path)
    options: dict[str, Any] = {name: given[name] for name in _WORD_COLUMNS if given.get(name) is not None}
    if files := conll_files(place):
        guess.say("words from the first column of each line, tags from the last", "token_column", "tag_column")
        splits = guess.splits(files, None)
    else:
        rows = guess.parts()
        words, tagged = columns.word_columns(next(iter(rows.values()))) if len(options) < 2 else (None, None)
        options = {"token_column": words, "tag_column": tagged} | options
        guess.say(f"words from `{options['token_column']}`, tags from `{options['tag_column']}`", "token_column")
        splits = guess.splits(rows, None)
    module = NER(
        data.path,
        data.tokenizer or guess.head.tokenizer(),
        tags=tags,
        **options,
        **guess.text_options(splits),
    )
    if guess.use != "inputs" and (others := module.other_tags()):
        raise InputError(
            f"{sum(others.values())} words have tags that the model lacks ({columns.shown(sorted(others))}; it has "
            f"{columns.shown(tags)}); expected data with the model's tags, or --data NER, which reads others as "
            f"{OUTSIDE}, with data.path, data.tokenizer and data.tags"
        )
    return module


def _running(guess: Guess) -> LightningDataModule:
    data, rows = guess.data, guess.parts()
    text = guess.column("text_column")
    if text is None:
        text, _ = columns.text_columns(next(iter(rows.values())), [guess.split_column])
    guess.say(f"text from `{text}`", "text_column")
    return LanguageModelling(
        data.path,
        data.tokenizer or guess.head.tokenizer(),
        masked=guess.head.task == "masked_lm",
        text_column=text,
        **guess.text_options(guess.splits(rows, None)),
    )


def _targets(guess: Guess) -> LightningDataModule:
    data, rows = guess.data, guess.parts()
    text, target = guess.column("text_column"), guess.column("target_column")
    given = [name for name in (text, target) if name is not None]
    first = with_parts(next(iter(rows.values())), given)
    require_columns(Source(data.path), first, given)
    try:
        text, target = columns.target_columns(first, text, target, [guess.split_column])
    except InputError:
        if guess.use != "inputs" or target is not None:
            raise
        # Where texts are only looked at, a decoder may read the same ones.
        text = text or columns.text_columns(first, [guess.split_column])[0]
        target = text
    guess.say(f"text from `{text}`, target from `{target}`", "text_column", "target_column")
    tokenizer = data.tokenizer or guess.head.tokenizer()
    start = guess.head.decoder_start(load_tokenizer(tokenizer).pad_token_id)
    return TextToText(
        data.path,
        tokenizer,
        text_column=text,
        target_column=target,
        prefix=data.prefix,
        decoder_start=start,
        **guess.text_options(guess.splits(rows, None)),
    )


def _questions(guess: Guess) -> LightningDataModule:
    data, rows = guess.data, guess.parts()
    first = next(iter(rows.values()))
    given = [guess.column(name) for name in _TEXT_COLUMNS]
    require_columns(Source(data.path), first, [name for name in given if name is not None])
    found = columns.answer_columns(first, *given, taken=[guess.split_column], are_needed=guess.use != "inputs")
    guess.say(f"questions from `{found.question}`, contexts from `{found.context}`", "text_column", "pair_column")
    if found.answer is not None:
        begins = "" if found.start is None else f", which begin at `{found.start}`"
        guess.say(f"answers from `{found.answer}`{begins}", "label_column")
    return QuestionAnswering(
        data.path,
        data.tokenizer or guess.head.tokenizer(),
        question_column=found.question,
        context_column=found.context,
        answer_column=found.answer,
        start_column=found.start,
        **guess.text_options(guess.splits(rows, found.answer)),
    )


def _pairs(guess: Guess) -> LightningDataModule:
    data, rows = guess.data, guess.parts()
    first = next(iter(rows.values()))
    given = [guess.column(name) for name in _TEXT_COLUMNS]
    require_columns(Source(data.path), first, [name for name in given if name is not None])
    text, pair, label = given
    tokenizer = data.tokenizer or guess.head.tokenizer()
    try:
        label = label or labels.number_column(first).column
        text, pair = columns.pair_columns(first, text, pair, [guess.split_column])
    except InputError:
        if guess.use != "inputs" or any(given[1:]):
            raise
        text = text or columns.text_columns(first, [guess.split_column])[0]
        guess.say(f"text from `{text}`", "text_column")
        options = guess.text_options(guess.splits(rows, None))
        return TextClassification(data.path, tokenizer, text_column=text, label_column=None, **options)
    scale = _scale([value for part in rows.values() for value in part[label]])
    guess.say(f"texts from `{text}` and `{pair}`", "text_column", "pair_column")
    guess.say(f"how alike they are from `{label}` (up to {scale:g})", "label_column")
    return EmbeddingSimilarity(
        data.path,
        tokenizer,
        text_column=text,
        pair_column=pair,
        label_column=label,
        scale=scale,
        **guess.text_options(guess.splits(rows, label)),
    )


def _scale(values: Sequence[object]) -> float:
    """The number of texts that say the same: 1, or the largest that there is, rounded up."""
    numbers = [value for value in values if isinstance(value, int | float) and math.isfinite(value)]
    return float(max(1, math.ceil(max(numbers, default=1))))


def _images(guess: Guess) -> LightningDataModule:
    rows = guess.parts()
    image = _image_column(guess, rows)
    found = guess.label_column(list(rows.values()), "classification", (image, guess.split_column))
    guess.say(f"images from `{image}`", "image_column")
    if found is not None:
        guess.say_labels(found, guess.head.task)
    return Images(
        guess.data.path,
        label_column=None if found is None else found.column,
        label_values=None if found is None else found.values,
        class_names=list(guess.head.names),
        **_image_options(guess, rows, image, None if found is None else found.column),
    )


def _named_images(guess: Guess) -> LightningDataModule:
    data, rows = guess.data, guess.parts()
    image, column = _image_column(guess, rows), guess.column("label_column")
    if column is not None:
        require_columns(Source(data.path), next(iter(rows.values())), [column])
    found = named_classes(list(rows.values()), column, data.label_values, (image, guess.split_column))
    template = data.template or TEMPLATE
    guess.say(f"images from `{image}`", "image_column")
    guess.say(f"label from `{found.column}` ({columns.shown(found.names)})", "label_column")
    guess.say(f"each class as the text {template!r}", *(["template"] if data.template is None else []))
    return ZeroShotImages(
        data.path,
        data.tokenizer or guess.head.tokenizer(),
        template=template,
        max_length=data.max_length or guess.head.max_length(),
        pad_to=guess.head.padded_length(),
        label_column=found.column,
        label_values=found.values,
        class_names=found.names,
        **_image_options(guess, rows, image, found.column),
    )


def _image_column(guess: Guess, rows: Mapping[str, Any]) -> str:
    return guess.column("image_column") or columns.image_column(next(iter(rows.values())))


def _image_options(guess: Guess, rows: Mapping[str, Any], image: str, label: str | None) -> dict[str, Any]:
    """The options that all data modules of images have."""
    data, splits = guess.data, guess.splits(rows, label)
    if splits.pop("test_on_all", False):
        splits["test_split"], splits["train_split"] = splits["train_split"], None
    return {
        "image_column": image,
        "augment": False,
        "limit": data.limit,
        "batch_size": data.batch_size,
        "config_name": data.config_name,
        "split_column": guess.split_column,
        **guess.head.image_options(),
        **splits,
    }


def _naming(path: str, words: str) -> str:
    return words if path in words else f"{path}: {words}"


_KINDS: dict[Kind, Callable[[Guess], LightningDataModule]] = {
    "texts": _texts,
    "words": _words,
    "running text": _running,
    "questions": _questions,
    "texts and targets": _targets,
    "pairs": _pairs,
    "images": _images,
    "images and class names": _named_images,
}
