"""Text for language models: blocks of tokens, with tokens to be filled in or the next one to be given."""

import dataclasses
import itertools
from typing import Any

from datasets import Dataset
from transformers import DataCollatorForLanguageModeling

from fusionlab.data.encoding import Columns, Encoder, encoded, texts_of
from fusionlab.data.text import TextData, token_collator
from fusionlab.data.tokenizers import affixes
from fusionlab.errors import InputError
from fusionlab.forward import LABELS

_EVALUATION_SEED = 1


@dataclasses.dataclass(frozen=True)
class BlockEncoder(Encoder):
    """Texts one after another, cut into blocks of the maximal length; one block of a batch of rows may be shorter."""

    text_column: str
    separator: str | None
    """Written after each text; the tokenizer's end-of-text (or separator) token if None."""
    special: bool
    """True if each block has the special tokens of a text around it."""
    stride: int | None = None
    """Tokens from the start of a block to that of the next; as many as a block has room for if None."""

    def __call__(self, rows: Columns) -> Columns:
        """Blocks of at least two tokens."""
        texts = [text + (self.separator or "") for text in texts_of(rows, self.text_column) if text]
        end = self.tokenizer.eos_token_id if self.tokenizer.eos_token_id is not None else self.tokenizer.sep_token_id
        between = [end] if self.separator is None and end is not None else []
        tokens = self.tokens(texts, add_special_tokens=False)["input_ids"] if texts else []
        stream = list(itertools.chain.from_iterable([*text, *between] for text in tokens))
        before, after = affixes(self.tokenizer) if self.special else ([], [])
        size = self.max_length - len(before) - len(after)
        if size < 2:
            raise InputError(
                f"data.max_length is {self.max_length}, but the tokenizer puts {len(before) + len(after)} special "
                f"tokens around each text; expected room for two more"
            )
        step = min(self.stride or size, size)
        # None after the one that comes to the end.
        starts = range(0, max(1, len(stream) - (size - step)), step)
        blocks = [before + stream[start : start + size] + after for start in starts]
        # One token alone has nothing to predict it from.
        blocks = [block for block in blocks if len(block) - len(before) - len(after) > 1]
        return {"input_ids": blocks, "attention_mask": [[1] * len(block) for block in blocks]} | (
            {} if self.special else {LABELS: blocks}
        )


class LanguageModelling(TextData):
    """Blocks of running text, for masked or causal language models.

    Batches hold ``input_ids``, ``attention_mask`` and ``labels``, all of shape ``(batch, tokens)``. Masked: 15 % of the
    tokens are to be filled in and labelled, drawn anew in each epoch of training and once for all for validation and
    testing; the others are labelled -100. Causal: every token is its own label, padding is -100.
    """

    encoded_together = 10_000

    def __init__(
        self,
        path: str,
        tokenizer: str,
        *,
        masked: bool = False,
        mask_probability: float = 0.15,
        text_column: str = "text",
        separator: str | None = None,
        val_split: str | None = "validation",
        stride: int | None = None,
        **options: Any,
    ) -> None:
        """Say where the text is and what is to be predicted.

        Args:
            path: a hub id, a folder of data files, or one file (text, Parquet, JSONL, CSV, Arrow).
            tokenizer: checkpoint folder or hub id that the tokenizer is read from; ``bytes`` for one token a byte.
            masked: whether tokens are filled in; else the next one is given.
            mask_probability: share of tokens that are filled in, above 0 and below 1.
            text_column: column of the texts.
            separator: written after each text, such as a blank line; the tokenizer's end-of-text (or separator) token
                if null.
            val_split: name of the validation split; held out if null and `val_size` is not 0.
            stride: tokens from the start of a training block to that of the next, from 1 to `max_length`; as many as
                a block has room for beside special tokens, so that blocks lie side by side, if null or more than that.
                With fewer, blocks overlap and there are more of them. Blocks for validation and testing never overlap.
            options: splits, lengths (`max_length` is the length of a block) and batches, see `TextData`.

        Raises:
            InputError: a value out of range.
        """
        super().__init__(path, tokenizer, val_split=val_split, **options)
        if not 0 < mask_probability < 1:
            raise InputError(f"data.mask_probability is {mask_probability}, but a value from 0 to 1 was expected")
        if stride is not None and not 1 <= stride <= self.max_length:
            raise InputError(f"data.stride is {stride}, but 1 to max_length, {self.max_length}, was expected")
        self.task = "masked_lm" if masked else "causal_lm"
        self.class_names = None
        self.masked = masked
        self.mask_probability = mask_probability
        self.text_column = text_column
        self.separator = separator
        self.stride = stride

    def columns(self) -> list[str]:
        """The texts."""
        return [self.text_column]

    def encoder(self) -> BlockEncoder:
        """Blocks of tokens."""
        if self.masked and self.tokenizer.mask_token is None:
            raise InputError(f"the tokenizer {self.tokenizer_source} has no mask token; expected data.masked: false")
        return BlockEncoder(self.tokenizer, self.max_length, self.text_column, self.separator, self.masked)

    def _load(self) -> None:
        if not self._encoded:
            encoder = self.encoder()
            training = dataclasses.replace(encoder, stride=self.stride)
            for use, part in self.rows.items():
                blocks = encoded(part, training if use == "train" else encoder, self.encoded_together)
                if not len(blocks):
                    raise InputError(f"{self.source.path}: the {use} split holds no text")
                self._encoded[use] = self._masked_once(blocks) if self.masked and use != "train" else blocks

    def _masked_once(self, blocks: Dataset) -> Dataset:
        """Blocks whose masked tokens are the same whenever they are looked at, so that scores can be compared."""
        mask = self._masking(seed=_EVALUATION_SEED)
        batch = mask([dict(block) for block in blocks])
        kept = batch["attention_mask"].bool()
        columns = {
            name: [row[known].tolist() for row, known in zip(batch[name], kept, strict=True)]
            for name in ("input_ids", "attention_mask", LABELS)
        }
        return Dataset.from_dict(columns)

    def _masking(self, seed: int | None = None) -> Any:
        return DataCollatorForLanguageModeling(
            self.tokenizer, mlm=True, mlm_probability=self.mask_probability, seed=seed
        )

    def collator(self) -> Any:
        """Masks blocks that have no labels yet, and pads."""
        return _Blocks(token_collator(self.tokenizer), self._masking() if self.masked else None)

    def texts(self, split: str) -> list[str]:
        """The texts of a split."""
        return [text for text in self.rows[split][self.text_column] if text] if split in self.rows else []


class _Blocks:
    """Pads blocks; those that have no labels yet are masked."""

    def __init__(self, pad: Any, mask: Any) -> None:
        self.pad, self.mask = pad, mask

    def __call__(self, samples: list[dict[str, Any]]) -> Any:
        return (self.pad if LABELS in samples[0] else self.mask)(samples)
