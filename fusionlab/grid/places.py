"""The interface of where the cells of a grid are made, and the place that is this process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Protocol

from fusionlab.grid.cells import Finished
from fusionlab.grid.design import Cell

# An end model that is trained on the way: its name and its seed.
Trained = tuple[str, int]


class Maker(Protocol):
    """A maker of cells, which keeps them. It can be pickled: a copy in another process makes the same.

    Attributes:
        folder: of the grid.
        broken: end models that cannot be had, with the reason; they are not tried again.
        fault: the first error of fusionlab's own that failed a cell; None where there was none.
    """

    folder: Path
    broken: dict[Trained, Exception]
    fault: Exception | None

    def make(self, cell: Cell) -> Finished:
        """Make a cell and write it; one that fails has its error."""

    def fail(self, cell: Cell, error: Exception) -> Finished:
        """Write a cell that could not be made at all."""

    def kept(self, cell: Cell) -> Finished | None:
        """A cell that is on the disk; None where it is to be made."""

    def untrained(self, cell: Cell) -> set[Trained]:
        """The end models that making a cell would train."""


class Place(ABC):
    """A place where cells are made."""

    @abstractmethod
    def cells(self, maker: Maker, missing: Sequence[Cell]) -> Generator[Finished, None, None]:
        """Make cells; each is given back as soon as it is finished, in any order.

        Where the iterator is closed before its end, what is being made is given up.

        Args:
            maker: makes them.
            missing: the cells.

        Raises:
            InputError: the place cannot make them.
        """


class Here(Place):
    """This process: one cell after another, in their order."""

    def cells(self, maker: Maker, missing: Sequence[Cell]) -> Generator[Finished, None, None]:
        """Make cells, see `Place.cells`."""
        yield from map(maker.make, missing)
