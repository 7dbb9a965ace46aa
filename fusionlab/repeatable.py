"""Data that give the same batches in every pass, whatever they draw at random: crops of images, hidden words."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset


def repeatable(batches: Iterable[Any], seed: int = 0) -> Any:
    """A loader of the same examples, which draws the same whenever a batch of the same examples is asked for.

    Two models are compared on the same inputs in two passes, and data that augment their images or hide words anew in
    each pass would not give them.

    Args:
        batches: a DataLoader; one of a stream, one that makes no batches of examples by itself, and any other iterable
            are given back as they are.
        seed: of what is drawn, at least 0.
    """
    if not isinstance(batches, DataLoader) or isinstance(batches.dataset, IterableDataset):
        return batches
    if batches.batch_size is None:
        return batches
    return DataLoader(
        _WithPlaces(batches.dataset, seed),
        batch_size=batches.batch_size,
        sampler=batches.sampler,
        collate_fn=_Collated(batches.collate_fn, seed),
        num_workers=batches.num_workers,
        pin_memory=batches.pin_memory,
        drop_last=batches.drop_last,
    )


class _Example(NamedTuple):
    place: int
    value: Any


class _WithPlaces(Dataset[Any]):
    """Examples of a data set with their places, by which those that are asked for together draw."""

    def __init__(self, dataset: Dataset[Any], seed: int) -> None:
        self.dataset, self.seed = dataset, seed

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def __getitem__(self, place: int) -> _Example:
        return self.__getitems__([place])[0]

    def __getitems__(self, places: Sequence[int]) -> list[_Example]:
        """The examples at some places, drawn together."""
        together = getattr(self.dataset, "__getitems__", None)
        with _drawing_by(places, self.seed):
            values = together(places) if together else [self.dataset[place] for place in places]
        return [_Example(place, value) for place, value in zip(places, values, strict=True)]


class _Collated:
    """Makes batches of examples with places as another function does of the examples."""

    def __init__(self, collate: Callable[[list[Any]], Any], seed: int) -> None:
        self.collate, self.seed = collate, seed

    def __call__(self, examples: list[_Example]) -> Any:
        with _drawing_by([example.place for example in examples], self.seed):
            return self.collate([example.value for example in examples])


@contextmanager
def _drawing_by(places: Sequence[int], seed: int) -> Iterator[None]:
    """Draws by torch, NumPy and Python follow places and a seed inside; outside they go on as if nothing was drawn."""
    drawn = np.random.SeedSequence([seed, *places]).generate_state(1)[0].item()
    python, arrays = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(drawn)
        np.random.seed(drawn)
        random.seed(drawn)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(arrays)
