"""Statements of a user about data of their own; what they leave out is guessed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Given:
    """Statements of a user about their data.

    Attributes:
        path: a file, a folder or a hub id.
        columns: by the options' names; None for those that are to be guessed.
        tokenizer: checkpoint folder or hub id; the checkpoint's own if None.
        task: of the labels of texts; that of the checkpoint's head if None.
        prefix: written before each text from which another is to be made.
        template: text of a class of images, with ``{}`` for its name; the usual one if None.
        label_values: what the label column holds for each class, in order; guessed if None.
        config_name: configuration of a hub data set.
        split_column: column that names the split of each row.
        train_split: name of the training split; guessed if None.
        test_split: name of the test split; guessed if None.
        test_size: rows or the share of them to hold out where there is no test split.
        val_split: name of the validation split; guessed if None.
        val_size: rows or the share of them to hold out of training where there is no validation split.
        limit: at most this many rows of each split.
        max_length: most tokens of a text; what the model takes, at most 128 (384 with a question), if None.
        batch_size: samples in a batch.
    """

    path: str
    columns: Mapping[str, str | int | None]
    tokenizer: str | None = None
    task: str | None = None
    prefix: str = ""
    label_values: list[bool | int | str] | None = None
    config_name: str | None = None
    split_column: str | None = None
    train_split: str | None = None
    test_split: str | None = None
    test_size: int | float = 0
    val_split: str | None = None
    val_size: int | float = 0
    limit: int | None = None
    max_length: int | None = None
    batch_size: int = 32
    template: str | None = None
