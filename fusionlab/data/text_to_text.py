"""Texts that become other texts (summaries, translations, answers), for models with an encoder and a decoder."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from fusionlab.checkpoints.files import CONFIG
from fusionlab.checkpoints.hub import locate
from fusionlab.checkpoints.huggingface_config import load_config
from fusionlab.data.encoding import Columns, Encoder, texts_of
from fusionlab.data.text import TextData
from fusionlab.data.tokenizers import BYTES, affixes
from fusionlab.decoder_inputs import Start, decoder_inputs, decoder_start
from fusionlab.errors import InputError
from fusionlab.forward import IGNORED, LABELS

DECODER_IDS, DECODER_MASK = "decoder_input_ids", "decoder_attention_mask"
LEAST_TOKENS = 4


@dataclasses.dataclass(frozen=True)
class TextToTextEncoder(Encoder):
    """Tokens of texts for an encoder; of their targets for a decoder, and as labels."""

    text_column: str
    target_column: str
    prefix: str
    """Written before each text."""
    target_length: int
    """Most tokens of a target, special ones included."""
    start: Start
    """The token that the decoder begins with."""
    languages: tuple[str | None, str | None]
    """Those of the texts and of the targets, as the tokenizer calls them; None for tokenizers of one language."""

    def __call__(self, rows: Columns) -> Columns:
        """One sample for each row; the labels of a row without a target are unknown."""
        texts = [self.prefix + text for text in texts_of(rows, self.text_column)]
        tokens = self.tokens(texts, truncation=True, max_length=self.max_length)
        found: Columns = {name: tokens[name] for name in self.tokenizer.model_input_names if name in tokens}
        targets = self._targets(texts_of(rows, self.target_column))
        known = [target is not None for target in rows[self.target_column]]
        return found | {
            DECODER_IDS: [decoder_inputs(target, self.start) for target in targets],
            DECODER_MASK: [[1] * len(target) for target in targets],
            LABELS: [
                target if is_known else [IGNORED] * len(target) for target, is_known in zip(targets, known, strict=True)
            ],
        }

    def _targets(self, texts: list[str]) -> list[list[int]]:
        """Tokens of the targets, each with an end, so that a model learns where to stop."""
        end = self.tokenizer.eos_token_id
        is_ended = end is None or bool(affixes(self.tokenizer)[1])
        longest = self.target_length - (not is_ended)
        targets = self.tokens(text_target=texts, truncation=True, max_length=longest)["input_ids"]
        return targets if is_ended else [[*target, end] for target in targets]


class TextToText(TextData):
    """Pairs of a text and the text that a model is to make of it, from any table whose columns are named.

    Batches hold ``input_ids`` and ``attention_mask`` of shape ``(batch, tokens)``; ``decoder_input_ids``,
    ``decoder_attention_mask`` and ``labels`` of shape ``(batch, target tokens)``, where the label at each place is the
    token that follows the decoder's input there. Padding is labelled -100. Longer texts and targets are truncated.
    """

    def __init__(
        self,
        path: str,
        tokenizer: str,
        *,
        text_column: str = "text",
        target_column: str = "target",
        prefix: str = "",
        target_length: int | None = None,
        decoder_start: Start | None = None,
        text_language: str | None = None,
        target_language: str | None = None,
        **options: Any,
    ) -> None:
        """Say where the texts are and which columns hold what.

        Args:
            path: a hub id, a folder of data files, or one file (Parquet, JSONL, CSV, Arrow).
            tokenizer: checkpoint folder or hub id that the tokenizer is read from; ``bytes`` for one token a byte.
            text_column: column of the texts; ``translation.en`` is the part ``en`` of a column of translations.
            target_column: column of the texts that are to be made of them; a row without one counts in no score.
            prefix: written before each text, such as ``summarize:`` and a space, by which T5 knows what is asked of it.
            target_length: most tokens of a target, at least 4; `max_length` if null.
            decoder_start: number of the token that the decoder begins with, or ``last`` for the last one of each target
                (the language of mBART's); if null, what the model's config beside the tokenizer says, and without one
                the padding token.
            text_language: of the texts, for tokenizers of several languages, as ``en_XX``; the tokenizer's own if null.
            target_language: of the targets.
            options: splits, lengths and batches, see `TextData`.

        Raises:
            InputError: a value out of range.
        """
        super().__init__(path, tokenizer, **options)
        if target_length is not None and target_length < LEAST_TOKENS:
            raise InputError(f"data.target_length is {target_length}, but at least {LEAST_TOKENS} was expected")
        self.task = "seq2seq"
        self.class_names = None
        self.text_column, self.target_column = text_column, target_column
        self.prefix = prefix
        self.target_length = target_length or self.max_length
        self.languages = {"src_lang": text_language, "tgt_lang": target_language}
        self._decoder_start = decoder_start

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer, set to the languages."""
        is_new = self._tokenizer is None
        found: Any = super().tokenizer
        for name, language in self.languages.items() if is_new else ():
            if language is not None:
                if not hasattr(found, name):
                    raise InputError(
                        f"the tokenizer {self.tokenizer_source} knows no languages; expected data.text_language and "
                        f"data.target_language: null"
                    )
                try:
                    setattr(found, name, language)
                except Exception as error:  # each tokenizer refuses in its own way
                    raise InputError(
                        f"the tokenizer {self.tokenizer_source} knows no language {language!r}; expected another one"
                    ) from error
        return found

    @property
    def decoder_start(self) -> Start:
        """The token that the decoder begins with; ``last`` where that is the last one of each target."""
        if self._decoder_start is not None:
            return self._decoder_start
        config = None
        if self.tokenizer_source != BYTES:
            folder = locate(self.tokenizer_source)
            config = load_config(folder) if (folder / CONFIG).is_file() else None
        padding: Any = self.tokenizer.pad_token_id
        return decoder_start(config, padding)

    def columns(self) -> list[str]:
        """The texts and their targets."""
        return [self.text_column, self.target_column]

    def encoder(self) -> TextToTextEncoder:
        """Tokens of both."""
        languages: Any = tuple(getattr(self.tokenizer, name, None) for name in self.languages)
        return TextToTextEncoder(
            self.tokenizer,
            self.max_length,
            self.text_column,
            self.target_column,
            self.prefix,
            self.target_length,
            self.decoder_start,
            languages,
        )

    def collator(self) -> _Pad:
        """Pads both sides."""
        return _Pad(self.tokenizer)

    def texts(self, split: str) -> list[str]:
        """The texts of a split, without their targets."""
        return [text or "" for text in self.rows[split][self.text_column]] if split in self.rows else []


class _Pad:
    """Pads the encoder's inputs as the tokenizer does, those of the decoder and the labels behind their end."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer

    def __call__(self, samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        padding: Any = self.tokenizer.pad_token_id
        added = {DECODER_IDS: padding, DECODER_MASK: 0, LABELS: IGNORED}
        read = [{name: value for name, value in sample.items() if name not in added} for sample in samples]
        batch = dict(self.tokenizer.pad(read, return_tensors="pt"))
        for name, value in added.items():
            rows = [torch.tensor(sample[name]) for sample in samples]
            batch[name] = pad_sequence(rows, batch_first=True, padding_value=value)
        return batch
