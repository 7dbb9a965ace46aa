"""The data that a fusion is measured on, in domain and out of domain, and the training data that it may look at."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader

from fusionlab.errors import InputError
from fusionlab.fusion.results import TestSet
from fusionlab.inputs import Inputs, gives_batches


@dataclass(frozen=True)
class Data:
    """Test loaders with what they are."""

    sets: tuple[TestSet, ...] = ()
    loaders: tuple[DataLoader[Any], ...] = ()

    def inside(self) -> Data:
        """The part in domain."""
        kept = [(s, loader) for s, loader in zip(self.sets, self.loaders, strict=True) if s.domain == "in"]
        return Data(tuple(s for s, _ in kept), tuple(loader for _, loader in kept))

    @staticmethod
    def of(inside: Sequence[LightningDataModule], outside: Sequence[LightningDataModule] = ()) -> Data:
        """The test loaders of data modules, in domain and out of domain.

        Raises:
            InputError: a data module without test data.
        """
        if not inside and not outside:
            return Data((), ())
        from fusionlab.data.contract import described  # noqa: PLC0415 (its library takes most of a second)

        sets: list[TestSet] = []
        loaders: list[DataLoader[Any]] = []
        for modules, domain in ((inside, "in"), (outside, "out")):
            for owner, module in enumerate(modules):
                facts = described(module)
                name = facts.name
                module.prepare_data()
                module.setup("test")
                loader = module.test_dataloader()
                if not isinstance(loader, DataLoader) or not gives_batches(loader):
                    raise InputError(
                        f"the data {name!r} has no test split; expected one to measure on (--data.test_split), or "
                        f"rows of it to hold out (--data.test_size)"
                    )
                taken = [s.name for s in sets]
                numbered = (f"{name} {number}" for number in itertools.count(2))
                unique = name if name not in taken else next(other for other in numbered if other not in taken)
                sets.append(
                    TestSet.of(facts, unique, "in" if domain == "in" else "out", owner if domain == "in" else None)
                )
                loaders.append(loader)
        return Data(tuple(sets), tuple(loaders))


class FusionData(LightningDataModule):
    """Several data modules as one: trained on those in domain, tested on each of them and on those out of domain.

    >>> data = FusionData([Digits(classes=[0, 1]), Digits(classes=[2, 3])], outside=[Digits(classes=[4])])
    >>> trainer.fit(fusion, datamodule=data)
    >>> trainer.test(fusion, datamodule=data)

    Args:
        inside: data like what the end models were trained on: one for all, or one for each, in their order.
        outside: data unlike it.

    Raises:
        InputError: there is none in domain.
    """

    def __init__(self, inside: Sequence[LightningDataModule], outside: Sequence[LightningDataModule] = ()) -> None:
        super().__init__()
        if not inside:
            raise InputError("inside names no data; expected at least one data module")
        self._inside, self._outside = tuple(inside), tuple(outside)
        self._data: Data | None = None

    def inputs(self, count: int, samples: int | None, seed: int) -> Inputs | None:
        """The training data in domain (see `Inputs.of`)."""
        return Inputs.of(self._inside, count, samples, seed)

    @property
    def data(self) -> Data:
        """The data that is measured on.

        Raises:
            InputError: a data module without test data.
        """
        if self._data is None:
            self._data = Data.of(self._inside, self._outside)
        return self._data

    def test_dataloader(self) -> list[DataLoader[Any]]:
        """One for each data module."""
        return list(self.data.loaders)
