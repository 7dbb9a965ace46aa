"""A part of some data that stands for all of it, where the first batches might hold one class alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, TypeGuard

import torch
from torch.utils.data import DataLoader, IterableDataset, SequentialSampler, Subset

from fusionlab.types import Batch


def reads_in_order(batches: Iterable[Any]) -> TypeGuard[DataLoader[Any]]:
    """True for a loader that reads a data set of known length in its order.

    Args:
        batches: a DataLoader, or any iterable of batches.
    """
    return (
        isinstance(batches, DataLoader)
        and isinstance(batches.sampler, SequentialSampler)
        and not isinstance(batches.dataset, IterableDataset)
        and batches.batch_size is not None
    )


def spread_loader(loader: DataLoader[Any], most: int) -> DataLoader[Any]:
    """A loader of at most so many examples, which lie evenly in all of the data, as do those of each batch.

    Args:
        loader: of a data set of known length; where data are stored class by class, neighbours are of one class.
        most: examples, at least 1.
    """
    dataset: Any = loader.dataset
    taken = min(len(dataset), most)
    rows = (torch.arange(taken) * len(dataset) // max(1, taken)).tolist()
    apart = -(-taken // (loader.batch_size or 1))
    order = [row for place in range(apart) for row in rows[place::apart]]
    return DataLoader(
        Subset(dataset, order),
        batch_size=loader.batch_size,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory,
    )


def spread(batches: Iterable[Batch], most: int) -> list[Batch]:
    """At most so many batches, of a loader that reads in order from all of its data, and of anything else the first.

    Args:
        batches: inputs.
        most: batches, at least 1.
    """
    if reads_in_order(batches):
        batches = spread_loader(batches, most * (batches.batch_size or 1))
    return list(itertools.islice(batches, most))
