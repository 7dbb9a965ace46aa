"""Data named by a file, a folder or a hub id alone: what is not said follows from a checkpoint and from the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from lightning.pytorch import LightningDataModule

from fusionlab.checkpoints import Checkpoint, read
from fusionlab.data.choosing import Use
from fusionlab.data.given import Given
from fusionlab.data.guessing import guessed
from fusionlab.data.purpose import head_of
from fusionlab.data.tables import refuse_no_id
from fusionlab.errors import InputError
from fusionlab.paths import expanded
from fusionlab.suggestions import beside

SHARE = 0.2


class OwnData(LightningDataModule):
    """Data that become a data module once a checkpoint is known: task, tokenizer, labels and columns follow from it.

    Whatever is given here is taken as it is; the rest is guessed, and `fitted` says what was guessed.
    """

    def __init__(
        self,
        path: str,
        *,
        tokenizer: str | None = None,
        task: Literal["classification", "multilabel", "regression"] | None = None,
        text_column: str | None = None,
        pair_column: str | None = None,
        target_column: str | None = None,
        prefix: str = "",
        template: str | None = None,
        label_column: str | None = None,
        label_values: list[bool | int | str] | str | None = None,
        image_column: str | None = None,
        token_column: str | int | None = None,
        tag_column: str | int | None = None,
        config_name: str | None = None,
        train_split: str | None = None,
        test_split: str | None = None,
        split_column: str | None = None,
        test_size: int | float = SHARE,
        val_split: str | None = None,
        val_size: int | float = 0,
        limit: int | None = None,
        max_length: int | None = None,
        batch_size: int = 32,
    ) -> None:
        """Name the data; nothing is read yet.

        Args:
            path: a CSV, TSV, Parquet, JSONL, Arrow or text file, a CoNLL file, a folder of such files, a folder with
                one sub-folder of images for each class, a folder that `save_to_disk` of the datasets library wrote,
                or a hub id.
            tokenizer: checkpoint folder or hub id of the tokenizer; the checkpoint's own if null.
            task: of the labels of texts; that of the checkpoint's head if null.
            text_column: column of the texts; guessed from names and types if null.
            pair_column: column of second texts; guessed from names such as premise and hypothesis if null. Of models
                that find answers in texts, that of these texts; `text_column` is then that of the questions.
            target_column: column of the texts that are to be made of others, for models with an encoder and a decoder;
                guessed from names such as target, summary and output if null.
            prefix: written before each text from which another is to be made, as T5 has it.
            template: text of a class of images, with ``{}`` for its name, for models that compare images with texts,
                such as CLIP; ``a photo of a {}.`` if null.
            label_column: column of the labels, or of the answers to questions; guessed from names and from the
                checkpoint's labels if null.
            label_values: what that column holds for each of the checkpoint's labels, in their order, with commas
                between them.
            image_column: column of the images; guessed if null.
            token_column: column of words; guessed if null; of CoNLL files its number, the first if null.
            tag_column: column of their tags; guessed if null; of CoNLL files its number, the last if null.
            config_name: configuration of a hub data set that has several.
            train_split: name of the training split; the one that is called so, or the only one, if null.
            test_split: name of the test split; the one that is called so, or else the validation split, if null.
            split_column: column that names the split of each row, for one file with several splits.
            test_size: rows, or below 1 the share of them, that are held out where there is no test split; drawn at
                random, but always the same.
            val_split: name of the split that settings are chosen on (``--search``, the method ``soup``); the one that
                is called so, if null.
            val_size: rows, or below 1 the share of them, that are held out of training for that where there is no such
                split; always the same.
            limit: at most this many rows of each split, for a quick look.
            max_length: most tokens of a text; 128 (384 with a question), or as many as the model has positions for, if
                null.
            batch_size: samples in a batch.

        Raises:
            InputError: no such file or folder, and nothing that could be a hub id.
        """
        super().__init__()
        self.save_hyperparameters(logger=False)
        if not expanded(path).exists():
            _refuse_missing(path)
        named = {
            "text_column": text_column, "pair_column": pair_column, "target_column": target_column,
            "label_column": label_column, "image_column": image_column, "token_column": token_column,
            "tag_column": tag_column,
        }  # fmt: skip
        if isinstance(label_values, str):
            label_values = [yaml.safe_load(value) for value in label_values.split(",")]
        self.given = Given(
            path, named, tokenizer, task, prefix, label_values, config_name, split_column, train_split, test_split,
            test_size, val_split, val_size, limit, max_length, batch_size, template,
        )  # fmt: skip

    def setup(self, stage: str) -> None:
        """Refuse to be used before it was fitted.

        Raises:
            InputError: always.
        """
        raise InputError(
            f"{self.given.path}: tokenizer, labels and columns follow from a checkpoint, and none is known here; "
            f"expected a data module by its class, with these as its options"
        )

    def fitted(self, checkpoint: Checkpoint, use: Use = "measuring") -> tuple[LightningDataModule, str]:
        """The data module for a checkpoint, and a sentence on what was guessed.

        Args:
            checkpoint: whose task, labels and tokenizer it gets.
            use: ``measuring`` on a test split, held out where there is none; ``outside`` to measure on all rows; or
                ``inputs``, of which the training split is looked at and labels are not needed.

        Raises:
            InputError: data that cannot be read, or columns that cannot be guessed; names the option that says them.
        """
        return guessed(self.given, head_of(checkpoint), use)


def own_data(path: str, checkpoint: str | Path, **options: Any) -> LightningDataModule:
    """The data module of a file, a folder or a hub id, for a checkpoint whose task, labels and tokenizer it gets.

    Args:
        path: of the data, see `OwnData`.
        checkpoint: a folder, a ``.ckpt`` file or a hub id.
        options: what is not to be guessed, see `OwnData`.

    Raises:
        InputError: a checkpoint or data that cannot be read, or columns that cannot be guessed.
    """
    return OwnData(path, **options).fitted(read(checkpoint))[0]


def _refuse_missing(path: str) -> None:
    """Refuse what is neither here nor could be a hub id; names what lies beside it and is called nearly so."""
    try:
        refuse_no_id(path)
    except InputError as error:
        raise InputError(f"{error}{beside(expanded(path))}") from error
