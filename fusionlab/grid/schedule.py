"""The order of cells that are made side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusionlab.grid.design import Cell
from fusionlab.grid.places import Trained


class Schedule:
    """Says which cell is to be started next.

    While one cell trains an end model, the others that need it wait. Groups are spread: a cell of a group of which
    none is being made goes first, as the process that makes a group's cells one after another finds each matching
    once. Else a cell of another matching goes before one of a matching that is being looked for already.

    Args:
        cells: to be made, in the order of the grid.
        untrained: gives the end models that making a cell would train; asked again once a cell has ended.
    """

    def __init__(self, cells: Sequence[Cell], untrained: Callable[[Cell], set[Trained]]) -> None:
        self._waiting = list(cells)
        self._running: list[Cell] = []
        self._untrained = untrained
        self._needs = {cell: untrained(cell) for cell in cells}
        self._had: set[Trained] = set()

    def __len__(self) -> int:
        """The number of cells that have not been started."""
        return len(self._waiting)

    def start(self) -> Cell | None:
        """The next cell, which counts as being made from now on; None where all have to wait, or none is left."""
        held = set().union(*(self._needed(cell) for cell in self._running))
        ready = [cell for cell in self._waiting if not self._needed(cell) & held]
        if not ready:
            return None
        cell = min(ready, key=self._crowd)
        self._waiting.remove(cell)
        self._running.append(cell)
        return cell

    def end(self, cell: Cell) -> None:
        """Say that a cell is no longer being made, finished or not."""
        self._running.remove(cell)
        self._had |= self._needed(cell) - self._untrained(cell)

    def _needed(self, cell: Cell) -> set[Trained]:
        return self._needs[cell] - self._had

    def _crowd(self, cell: Cell) -> tuple[int, int]:
        """Counts of cells of its matching, and of its group, that are being made; of equals `min` takes the first."""
        group = [other for other in self._running if (other.models, other.seed) == (cell.models, cell.seed)]
        return sum(other.matching == cell.matching for other in group), len(group)
