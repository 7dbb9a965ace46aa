"""Data as the pass over it needs it: every example once, in order, shared out over processes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler, Subset

from fusionlab.errors import InputError
from fusionlab.examples import example_count
from fusionlab.inputs import in_order
from fusionlab.types import Batch


def ordered_loader(batches: Iterable[Batch]) -> tuple[DataLoader[Any], Batch]:
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
            begun = iter(loader)
            first = next(begun, None)
            if _is_gone_through_once(loader):
                loader = DataLoader(Stream(itertools.chain([first], begun)), batch_size=None)  # type: ignore[list-item]
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


def _is_gone_through_once(loader: DataLoader[Any]) -> bool:
    """True for data that give one iterator whenever they are asked for one, so that a batch is there once."""
    data: Any = loader.dataset
    return isinstance(data, IterableDataset) and loader.num_workers == 0 and iter(data) is iter(data)


def _in_order(loader: DataLoader[Any]) -> DataLoader[Any]:
    """A loader of the same data that neither shuffles nor drops a last batch: a process would shuffle by itself."""
    if isinstance(loader.dataset, IterableDataset) or loader.batch_size is None:
        return loader
    dataset: Any = loader.dataset
    if not isinstance(loader.sampler, RandomSampler | SequentialSampler):
        dataset = Subset(dataset, list(loader.sampler))
    return DataLoader(
        dataset,
        batch_size=loader.batch_size,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory,
    )


class Stream(IterableDataset[Batch]):
    """Batches that can be gone through only once."""

    def __init__(self, batches: Iterable[Batch]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)


def part_of(batches: Iterable[Batch], samples: int, seed: int = 0) -> Iterable[Batch]:
    """A part of some inputs: of a data set or a list drawn at random, of anything else the first.

    Args:
        batches: a DataLoader, or any iterable of batches.
        samples: how many inputs; whole batches that hold about so many where they come in batches only, and all where
            there are fewer.
        seed: of the draw.
    """
    if isinstance(batches, DataLoader) and batches.batch_size and not isinstance(batches.dataset, IterableDataset):
        return in_order(_in_order(batches), samples, seed)
    taken = batches
    if isinstance(batches, Sequence):
        order = torch.randperm(len(batches), generator=torch.Generator().manual_seed(seed))
        taken = (batches[place] for place in order.tolist())
    drawn: list[Batch] = []
    for batch in taken:
        drawn.append(batch)
        if sum(map(example_count, drawn)) >= samples:
            break
    return drawn


def count_of(loader: DataLoader[Any]) -> int | None:
    """The number of batches of a loader; None if it is not known before."""
    return None if isinstance(loader.dataset, IterableDataset) else len(loader)


def _shares_batches(loader: DataLoader[Any]) -> bool:
    """True if the batches are made before they are shared out."""
    return isinstance(loader.dataset, IterableDataset) or (
        loader.batch_size is None and loader.batch_sampler is not None
    )


def shared_out(loader: DataLoader[Any], rank: int, processes: int) -> Iterator[Batch]:
    """One process's share of the data; as many batches for each, empty ones at the end where another has more.

    The examples of a data set are shared, each process taking every so many, and the batches of anything else.

    Args:
        loader: of all of the data, in order.
        rank: of the process.
        processes: how many there are.
    """
    if processes == 1:
        yield from loader
    elif _shares_batches(loader):
        batches = iter(loader)
        while together := list(itertools.islice(batches, processes)):
            yield together[rank] if rank < len(together) else {}
    else:
        size: int = len(loader.dataset)  # type: ignore[arg-type]
        per_batch = loader.batch_size or 1
        mine = Subset(loader.dataset, range(rank, size, processes))
        yield from DataLoader(
            mine, batch_size=loader.batch_size, collate_fn=loader.collate_fn, num_workers=loader.num_workers
        )
        most, own = (-(-len(range(first, size, processes)) // per_batch) for first in (0, rank))
        yield from ({} for _ in range(most - own))
