"""The data loaders of all data modules."""

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import BatchSampler, RandomSampler, Sampler

from fusionlab.errors import InputError

# More than any data set has samples, and than some of torch's samplers count to.
MOST_SAMPLES = 2**31 - 1


def refuse_large_batches(**sizes: int | None) -> None:
    """Refuse sizes of batches that no sampler counts to.

    Args:
        sizes: by the option's name.

    Raises:
        InputError: names the option.
    """
    for name, size in sizes.items():
        if size is not None and size > MOST_SAMPLES:
            raise InputError(f"data.{name} is {size}; expected at most {MOST_SAMPLES:,}")


class FollowsEpochs(Sampler[int]):
    """A sampler of training batches whose order follows the Trainer's seed and the epoch.

    It starts from the seed itself, not from the current state of torch's generator: two runs with one seed see the
    batches in one order even when their models draw different numbers of random weights. Orders are drawn one after
    another. Where the Trainer begins later than with the first of them (a training that goes on, loaders that are made
    anew for each epoch), those before are drawn again and passed over. Workers are given their first samples before the
    Trainer has read where a training goes on: in its first epoch they have the order of another.

    It stands before the sampler that draws an order, whose generator it sets. The loader is given the generator too.

    Attributes:
        batch_size: of the loader.
        num_workers: of the loader, which keeps them from epoch to epoch.
    """

    generator: Any
    batch_size: int
    num_workers = 0
    _epoch: int | None = None
    _drawn = 0  # orders
    _draws = False  # the loader, too
    _skips = False  # some epochs, since the last order

    def start(self, num_workers: int = 0) -> None:
        """Begin with the first epoch.

        Args:
            num_workers: of the loader, which keeps them from epoch to epoch.
        """
        self.num_workers = num_workers
        self._seed = torch.initial_seed()
        self.generator = torch.Generator().manual_seed(self._seed)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch whose order comes next, as Trainers do; without it there is a new one each time.

        Args:
            epoch: from 0.
        """
        last = -1 if self._epoch is None else self._epoch
        self._skips |= epoch not in (last, last + 1)
        self._epoch = epoch

    def __iter__(self) -> Iterator[int]:
        # Only now: a loader that has the generator draws a seed for its workers from it when it begins.
        if not self._drawn:
            fresh = torch.Generator().manual_seed(self._seed).get_state()
            self._draws = not torch.equal(self.generator.get_state(), fresh)
        if self._epoch is not None and (self._skips or self._epoch != self._drawn):
            self._pass_over(self._epoch)
            self._skips = False
        self._drawn += 1
        yield from super().__iter__()

    def _pass_over(self, epochs: int) -> None:
        """Draw what is drawn before an epoch of a training that is not cut."""
        self.generator.manual_seed(self._seed)
        for epoch in range(epochs + 1):
            # Where there are workers they are kept, with their seed.
            if self._draws and (epoch == 0 or not self.num_workers):
                torch.empty((), dtype=torch.int64).random_(generator=self.generator)
            if epoch == epochs:
                break
            # The last batch that is asked for decides whether the sampler is run to its end.
            batches = BatchSampler(super().__iter__(), self.batch_size, drop_last=False)
            count = None if self.num_workers else -(-len(self) // self.batch_size)  # type: ignore[arg-type]
            for _ in itertools.islice(batches, count):
                pass
        self._drawn = epochs


class TrainingOrder(FollowsEpochs, RandomSampler):
    """The samples in a random order that follows the seed and the epoch."""

    def __init__(self, samples: Any, batch_size: int, num_workers: int = 0) -> None:
        """Begin with the first epoch.

        Args:
            samples: the data set.
            batch_size: of the loader.
            num_workers: of the loader, which keeps them from epoch to epoch.
        """
        super().__init__(samples)
        self.batch_size = batch_size
        self.start(num_workers)


def shuffled(samples: Any, batch_size: int, num_workers: int = 0) -> dict[str, Any]:
    """Arguments of a loader of training batches, which must not be given any word about shuffling beside them.

    A Trainer on several devices puts a sampler of its own in place of a random one, and shuffles too unless it finds
    that the loader was told not to.

    Args:
        samples: the data set.
        batch_size: of the loader.
        num_workers: of the loader, which keeps them from epoch to epoch.
    """
    order = TrainingOrder(samples, batch_size, num_workers)
    return {"sampler": order, "generator": order.generator}
