"""Tables of images and labels: choosing their splits, and checking every label before training."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import datasets
import numpy as np
import torch
from datasets import ClassLabel, Features
from PIL.Image import Image
from torch import Tensor
from torch.utils.data import Dataset

from fusionlab.data.encoding import number_of, values_of
from fusionlab.data.preprocessing import Preprocessing
from fusionlab.data.splits import Splits, held_out, named_splits, shuffled
from fusionlab.data.tables import Source, numbered
from fusionlab.errors import InputError, first_line
from fusionlab.forward import LABELS

DECODER, STORED = datasets.Image(), datasets.Image(decode=False)


@dataclasses.dataclass(frozen=True)
class Table:
    """The place of images and labels."""

    path: str
    config_name: str | None
    image_column: str
    label_column: str | None
    """None for images without labels."""
    split_column: str | None
    class_names: list[str] | None
    label_values: list[Any] | None = None
    """The value of the column for each class, where that is not its number."""


class PreparedImages(Dataset[dict[str, Tensor]]):
    """Images as normalised tensors, with their labels if they have any."""

    def __init__(self, rows: datasets.Dataset, labels: np.ndarray | None, transform: Callable[[Image], Tensor]) -> None:
        self.rows = rows
        (self.column,) = rows.column_names
        self.labels = None if labels is None else torch.from_numpy(labels)
        self.transform = transform

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        stored = self.rows[index][self.column]
        if stored is None or (stored["bytes"] is None and stored["path"] is None):
            raise InputError(f"column {self.column!r} of the images has a row without one; expected an image in each")
        # Of a member of an archive (zip://a.png::place) it is the place that counts.
        if stored["bytes"] is None and "://" in stored["path"].rpartition("::")[2]:
            # The library would fetch it, whatever address the data names.
            raise InputError(
                f"column {self.column!r} names {stored['path']}; expected images, or files of this machine"
            )
        try:
            image = DECODER.decode_example(stored)
        except (OSError, MemoryError):
            # Told as they are: those of the system name the file.
            raise
        except Exception as error:
            # Readers of image formats each have errors of their own.
            raise InputError(
                f"column {self.column!r} has an image that cannot be read ({first_line(error)}); expected images"
            ) from error
        pixels = {"pixel_values": self.transform(image)}
        return pixels if self.labels is None else pixels | {LABELS: self.labels[index]}


@dataclasses.dataclass(frozen=True)
class LabelledImages:
    """One split: its images (the only column), its labels, and the names of the classes."""

    rows: datasets.Dataset
    labels: np.ndarray | None
    class_names: list[str]

    def prepared(self, preprocessing: Preprocessing, augment: bool) -> PreparedImages:
        """The images as tensors.

        Args:
            preprocessing: size and normalisation.
            augment: whether to augment.

        Returns:
            A data set of ``{"pixel_values": (channels, height, width), "labels": ()}``.
        """
        return PreparedImages(self.rows, self.labels, preprocessing.transform(augment))


def load_splits(table: Table, splits: Splits) -> dict[str, LabelledImages]:
    """Read the splits of an image data set and check every label.

    Args:
        table: where they are.
        splits: their names, and what is held out where there are none.

    Returns:
        Images and labels for each split that there is.

    Raises:
        InputError: nothing to read, a missing column or split, an empty split, or labels that are not classes.
    """
    source = Source(table.path, table.config_name, table.split_column)
    columns = [table.image_column] if table.label_column is None else [table.image_column, table.label_column]
    rows = named_splits(source, splits.names, columns)
    # Labels are checked before rows are held out or left out, so that row numbers are those of the data set.
    labels, class_names = _checked_labels(table, splits, rows)
    chosen = {name: (name, np.arange(len(split))) for name, split in rows.items()}
    for name, size in (("test", splits.test_size), ("val", splits.val_size)):
        if size and name not in rows and "train" in rows:
            order = shuffled(chosen["train"][1])
            count = held_out(size, len(order), name, table.path)
            chosen[name], chosen["train"] = ("train", order[:count]), ("train", order[count:])
    images = {name: _images(table, split) for name, split in rows.items()}
    loaded = {}
    for name, (split, indices) in chosen.items():
        kept = indices if splits.limit is None or splits.limit >= len(indices) else shuffled(indices)[: splits.limit]
        known = labels.get(split)
        loaded[name] = LabelledImages(images[split].select(kept), None if known is None else known[kept], class_names)
    return loaded


def _checked_labels(
    table: Table, splits: Splits, rows: Mapping[str, datasets.Dataset]
) -> tuple[dict[str, np.ndarray], list[str]]:
    """The labels of each split, none where no column holds any, and the names of the classes."""
    if table.label_column is None:
        return {}, list(table.class_names or [])
    labels = {name: _labels(table, table.label_column, str(splits.names[name]), split) for name, split in rows.items()}
    class_names = _class_names(table, table.label_column, next(iter(rows.values())).features, labels)
    for name, values in labels.items():
        _refuse_outside(table, str(splits.names[name]), values, len(class_names))
    return labels, class_names


def _images(table: Table, rows: datasets.Dataset) -> datasets.Dataset:
    """The images alone, whatever they are stored as, to be decoded when they are asked for."""
    column = table.image_column
    return rows.select_columns([column]).cast_column(column, datasets.Image()).cast_column(column, STORED)


def _labels(table: Table, column: str, split: str, rows: datasets.Dataset) -> np.ndarray:
    values = rows.select_columns([column])[column][:]
    known = table.label_values or values_of(rows.features[column], table.class_names)
    if known is not None:
        return np.asarray([number_of(value, known, table.path, column) for value in values], dtype=np.int64)
    for row, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int) or value >= 2**63:
            raise InputError(
                f"{table.path}: column {column!r} holds {value!r} in row {row} of split {split!r}, but class numbers "
                f"(integers from 0) were expected, or data.label_values"
            )
    return np.asarray(values, dtype=np.int64)


def _class_names(table: Table, column: str, features: Features, labels: Mapping[str, np.ndarray]) -> list[str]:
    if table.class_names is not None:
        return list(table.class_names)
    feature = features[column]
    if isinstance(feature, ClassLabel):
        return list(feature.names)
    return numbered(max(int(values.max()) for values in labels.values()), table.path, column)


def _refuse_outside(table: Table, split: str, labels: np.ndarray, num_classes: int) -> None:
    outside = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if len(outside):
        row = int(outside[0])
        raise InputError(
            f"{table.path}: column {table.label_column!r} holds {int(labels[row])} in row {row} of split {split!r}, "
            f"but labels from 0 to {num_classes - 1} were expected"
        )
