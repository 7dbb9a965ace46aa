"""Data as the pass over it needs it: every example once, in order, shared out over processes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler

from fusionlab.errors import InputError
from fusionlab.forward import Batch


def ordered_loader(batches: Iterable[Batch]) -> tuple[DataLoader, Batch]:
    """A loader that gives all of the data in order, and a batch of it.

    Args:
        batches: a DataLoader, or any iterable of batches.

    Raises:
        InputError: one batch instead of several, or no data.
    """
    if isinstance(batches, Mapping):
        raise InputError("the data is one batch; expected an iterable of batches")
    if isinstance(batches, DataLoader):
        loader = _in_order(batches)
        if isinstance(loader.dataset, IterableDataset) or loader.batch_size is None:
            first = next(iter(loader), None)
        else:
            first = loader.collate_fn([loader.dataset[0]]) if len(loader.dataset) else None  # type: ignore[arg-type]
    elif isinstance(batches, Sequence):
        loader, first = DataLoader(batches, batch_size=None), batches[0] if batches else None  # type: ignore[arg-type]
    else:
        iterator = iter(batches)
        first = next(iterator, None)
        loader = DataLoader(Stream(itertools.chain([first], iterator)), batch_size=None)  # type: ignore[list-item]
    if first is None:
        raise InputError("the data holds no example; expected at least one")
    return loader, first


def _in_order(loader: DataLoader) -> DataLoader:
    """The loader, if shuffled one that is not: each process would shuffle by itself, and examples be seen twice."""
    if not isinstance(loader.sampler, RandomSampler):
        return loader
    return DataLoader(
        loader.dataset,
        batch_size=loader.batch_size,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory,
    )


class Stream(IterableDataset[Batch]):
    """Batches that can be gone through only once; each process takes every so many."""

    def __init__(self, batches: Iterable[Batch]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Batch]:
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        rank, count = (torch.distributed.get_rank(), torch.distributed.get_world_size()) if distributed else (0, 1)
        return itertools.islice(self._batches, rank, None, count)
