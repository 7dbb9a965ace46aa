"""Tables of images and labels: choosing their splits, and checking every label before training."""

import dataclasses
from collections.abc import Callable, Mapping

import datasets
import numpy as np
import torch
from datasets import ClassLabel, Features
from PIL.Image import Image
from torch import Tensor
from torch.utils.data import Dataset

from fusionlab.data.preprocessing import Preprocessing
from fusionlab.data.splits import held_out, named_splits, shuffled
from fusionlab.data.tables import Source, numbered
from fusionlab.errors import InputError, first_line

DECODER, STORED = datasets.Image(), datasets.Image(decode=False)


@dataclasses.dataclass(frozen=True)
class Table:
    """The place of images and labels."""

    path: str
    config_name: str | None
    image_column: str
    label_column: str
    split_column: str | None
    class_names: list[str] | None


class PreparedImages(Dataset[dict[str, Tensor]]):
    """Images as normalised tensors, with their labels."""

    def __init__(self, rows: datasets.Dataset, labels: np.ndarray, transform: Callable[[Image], Tensor]) -> None:
        self.rows = rows
        (self.column,) = rows.column_names
        self.labels = torch.from_numpy(labels)
        self.transform = transform

    def __len__(self) -> int:
        return len(self.labels)

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
        return {"pixel_values": self.transform(image), "labels": self.labels[index]}


@dataclasses.dataclass(frozen=True)
class LabelledImages:
    """One split: its images (the only column), its labels, and the names of the classes."""

    rows: datasets.Dataset
    labels: np.ndarray
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


def load_splits(
    table: Table, splits: Mapping[str, str | None], val_size: int, limit: int | None
) -> dict[str, LabelledImages]:
    """Read the splits of an image data set and check every label.

    Args:
        table: where they are.
        splits: names of the splits in the data set for ``train``, ``val`` and ``test``; None for none.
        val_size: without a ``val`` split: rows held out from ``train``.
        limit: at most this many rows of each split.

    Returns:
        Images and labels for each split that there is.

    Raises:
        InputError: nothing to read, a missing column or split, an empty split, or labels that are not classes.
    """
    source = Source(table.path, table.config_name, table.split_column)
    rows = named_splits(source, splits, [table.image_column, table.label_column])
    # Labels are checked before rows are held out or left out, so that row numbers are those of the data set.
    labels = {name: _labels(table, str(splits[name]), split) for name, split in rows.items()}
    class_names = _class_names(table, next(iter(rows.values())).features, labels)
    for name, values in labels.items():
        _refuse_outside(table, str(splits[name]), values, len(class_names))
    chosen = {name: (name, np.arange(len(split))) for name, split in rows.items()}
    if val_size and "val" not in rows:
        held_out(val_size, len(rows["train"]), "val")
        order = shuffled(chosen["train"][1])
        chosen["val"], chosen["train"] = ("train", order[:val_size]), ("train", order[val_size:])
    images = {name: _images(table, split) for name, split in rows.items()}
    loaded = {}
    for name, (split, indices) in chosen.items():
        kept = indices if limit is None or limit >= len(indices) else shuffled(indices)[:limit]
        loaded[name] = LabelledImages(images[split].select(kept), labels[split][kept], class_names)
    return loaded


def _images(table: Table, rows: datasets.Dataset) -> datasets.Dataset:
    """The images alone, whatever they are stored as, to be decoded when they are asked for."""
    column = table.image_column
    return rows.select_columns([column]).cast_column(column, datasets.Image()).cast_column(column, STORED)


def _labels(table: Table, split: str, rows: datasets.Dataset) -> np.ndarray:
    values = rows.select_columns([table.label_column])[table.label_column][:]
    for row, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int) or value >= 2**63:
            raise InputError(
                f"{table.path}: column {table.label_column!r} holds {value!r} in row {row} of split {split!r}, but "
                f"class numbers (integers from 0) were expected"
            )
    return np.asarray(values, dtype=np.int64)


def _class_names(table: Table, features: Features, labels: Mapping[str, np.ndarray]) -> list[str]:
    if table.class_names is not None:
        return list(table.class_names)
    feature = features[table.label_column]
    if isinstance(feature, ClassLabel):
        return list(feature.names)
    return numbered(max(int(values.max()) for values in labels.values()), table.path, table.label_column)


def _refuse_outside(table: Table, split: str, labels: np.ndarray, num_classes: int) -> None:
    outside = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if len(outside):
        row = int(outside[0])
        raise InputError(
            f"{table.path}: column {table.label_column!r} holds {int(labels[row])} in row {row} of split {split!r}, "
            f"but labels from 0 to {num_classes - 1} were expected"
        )
