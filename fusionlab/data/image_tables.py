"""Tables of images and labels: finding them, choosing their splits, and checking every label before training."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from datasets import ClassLabel, Features, concatenate_datasets, load_dataset
from PIL.Image import Image
from torch import Tensor
from torch.utils.data import Dataset

from fusionlab.checkpoints.files import first_line
from fusionlab.data.preprocessing import Preprocessing
from fusionlab.errors import InputError

_FILE_BUILDERS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".arrow": "arrow"}


@dataclasses.dataclass(frozen=True)
class Table:
    """Where images and labels are."""

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
        return {"pixel_values": self.transform(self.rows[index][self.column]), "labels": self.labels[index]}


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
    rows = _by_column(table, splits) if table.split_column else _by_name(table, splits)
    for name, split in rows.items():
        if not len(split):
            raise InputError(f"{table.path}: split {splits[name]!r} is empty")
    # Labels are checked before rows are held out or left out, so that row numbers are those of the data set.
    labels = {name: _labels(table, str(splits[name]), split) for name, split in rows.items()}
    class_names = _class_names(table, next(iter(rows.values())).features, labels)
    for name, values in labels.items():
        _refuse_outside(table, str(splits[name]), values, len(class_names))
    chosen = {name: (name, np.arange(len(split))) for name, split in rows.items()}
    if val_size and "val" not in rows:
        if val_size >= len(rows["train"]):
            raise InputError(f"data.val_size is {val_size}, but the training split has only {len(rows['train'])} rows")
        order = _shuffled(chosen["train"][1])
        chosen["val"], chosen["train"] = ("train", order[:val_size]), ("train", order[val_size:])
    images = {name: _images(table, split) for name, split in rows.items()}
    loaded = {}
    for name, (split, indices) in chosen.items():
        kept = indices if limit is None or limit >= len(indices) else _shuffled(indices)[:limit]
        loaded[name] = LabelledImages(images[split].select(kept), labels[split][kept], class_names)
    return loaded


def _shuffled(indices: np.ndarray) -> np.ndarray:
    """Rows in a fixed random order: many data sets are sorted by class, so that the first rows are all of one."""
    return np.random.default_rng(0).permutation(indices)


def _load(table: Table, split: str | None) -> Any:
    path = Path(table.path).expanduser()
    datasets.disable_progress_bars()
    try:
        if path.is_file():
            builder = _FILE_BUILDERS.get(path.suffix)
            if builder is None:
                raise InputError(f"{path} is a {path.suffix} file; one of {', '.join(_FILE_BUILDERS)} was expected")
            return load_dataset(builder, data_files=str(path), split=split)
        if not path.exists() and len(path.parts) > 2:
            raise InputError(f"{table.path}: there is no such file or folder")
        return load_dataset(str(path) if path.is_dir() else table.path, table.config_name, split=split)
    except InputError:
        raise
    except Exception as error:
        # Builders, the hub client and Arrow each raise their own; the sentence says which data set and why.
        where = f" split {split!r}" if split else ""
        raise InputError(f"{table.path}:{where} cannot be read as a data set ({first_line(error)})") from error
    finally:
        datasets.enable_progress_bars()


def _by_name(table: Table, splits: Mapping[str, str | None]) -> dict[str, datasets.Dataset]:
    """One load for each split, so that slices such as ``train[:80%]`` mean what they mean to the library."""
    return {name: _checked(table, _load(table, split)) for name, split in splits.items() if split is not None}


def _by_column(table: Table, splits: Mapping[str, str | None]) -> dict[str, datasets.Dataset]:
    column = str(table.split_column)
    parts = _load(table, None)
    rows = _checked(table, concatenate_datasets(list(parts.values())))
    if column not in rows.column_names:
        raise InputError(f"{table.path} has no column {column!r}; it has {', '.join(rows.column_names)}")
    values = np.asarray(rows.with_format("numpy")[column][:])
    chosen = {}
    for name, split in splits.items():
        if split is None:
            continue
        if split not in values:
            present = ", ".join(sorted({str(value) for value in values}))
            raise InputError(f"{table.path}: no row has {split!r} in column {column!r}; it holds {present}")
        chosen[name] = rows.select(np.flatnonzero(values == split))
    return chosen


def _checked(table: Table, rows: datasets.Dataset) -> datasets.Dataset:
    for column in (table.image_column, table.label_column):
        if column not in rows.column_names:
            raise InputError(f"{table.path} has no column {column!r}; it has {', '.join(rows.column_names) or 'none'}")
    return rows


def _images(table: Table, rows: datasets.Dataset) -> datasets.Dataset:
    """The images alone, decoded when they are asked for, whatever they are stored as."""
    return rows.select_columns([table.image_column]).cast_column(table.image_column, datasets.Image())


def _labels(table: Table, split: str, rows: datasets.Dataset) -> np.ndarray:
    values = rows.select_columns([table.label_column])[table.label_column][:]
    for row, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int):
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
    return [str(index) for index in range(max(int(values.max()) for values in labels.values()) + 1)]


def _refuse_outside(table: Table, split: str, labels: np.ndarray, num_classes: int) -> None:
    outside = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if len(outside):
        row = int(outside[0])
        raise InputError(
            f"{table.path}: column {table.label_column!r} holds {int(labels[row])} in row {row} of split {split!r}, "
            f"but labels from 0 to {num_classes - 1} were expected"
        )
