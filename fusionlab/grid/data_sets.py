"""The test sets of a grid's cells: each read once, in domain for some cells and out of domain for others."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lightning.pytorch import LightningDataModule

from fusionlab.data.contract import described
from fusionlab.errors import InputError, first_line
from fusionlab.evaluation.rows import END_MODEL, MULTITASK
from fusionlab.fusion import Data
from fusionlab.grid.design import Cell, Grid
from fusionlab.inputs import in_order

# What the published code decides otherwise: labels by their logits, and stray I- tags as entities.
PUBLISHED: dict[str | None, dict[str, Any]] = {"multilabel": {"decision": "logit"}, "tokens": {"mode": "conlleval"}}


class TestData:
    """Finds the test loaders of a cell.

    Args:
        grid: whose cells these are.
    """

    __test__ = False

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.names = _names([*(end.data for end in grid.end_models.values()), *grid.out_of_domain], grid)
        self._read: dict[str, Data] = {}
        self._absent: dict[str, Exception] = {}

    def of(self, cell: Cell) -> Data:
        """Own test sets in domain; an end model is also measured on those of the others where heads are merged.

        What is out of domain and cannot be had is left out, see `missing`.

        Raises:
            InputError: data in domain that cannot be read.
        """
        found = [(self._of(module), owner) for owner, module in enumerate(self._inside(cell))]
        known = [(replace(data.sets[0], domain="in", owner=owner), data.loaders[0]) for data, owner in found]
        outside = [data for module in self._outside(cell) if (data := self._if_there(module)) is not None]
        known += [(replace(data.sets[0], domain="out", owner=None), data.loaders[0]) for data in outside]
        if self.grid.heads != "own":
            # End models of one data set are measured on it once, unless each answers with a head of its own.
            known = list({test_set.name: (test_set, loader) for test_set, loader in reversed(known)}.values())[::-1]
        return Data(tuple(test_set for test_set, _ in known), tuple(loader for _, loader in known))

    def missing(self, cell: Cell) -> dict[str, str]:
        """The sets out of domain that a cell is not measured on as they cannot be had, with the reason."""
        keys = {self.grid.signature(module): module for module in self._outside(cell) if not self._if_there(module)}
        return {self.names[key]: first_line(self._absent[key]) for key in keys}

    def _inside(self, cell: Cell) -> list[LightningDataModule]:
        names = list(self.grid.end_models) if cell.method == MULTITASK else cell.models
        return [self.grid.end_models[name].data for name in names]

    def _outside(self, cell: Cell) -> list[LightningDataModule]:
        if cell.method != END_MODEL:
            return list(self.grid.out_of_domain)
        others = [end.data for name, end in self.grid.end_models.items() if name not in cell.models]
        # A head of its own says nothing about other tasks.
        return [*others, *self.grid.out_of_domain] if self.grid.heads == "merged" else []

    def _if_there(self, module: LightningDataModule) -> Data | None:
        try:
            return self._of(module)
        except InputError:
            return None

    def _of(self, module: LightningDataModule) -> Data:
        """One test set; what cannot be had is looked for once, not in every cell."""
        key = self.grid.signature(module)
        if key in self._absent:
            raise self._absent[key]
        if key not in self._read:
            try:
                found = self._chosen(Data.of([module]))
            except Exception as error:
                self._absent[key] = error
                raise
            self._read[key] = replace(found, sets=(replace(found.sets[0], name=self.names[key]),))
        return self._read[key]

    def _chosen(self, data: Data) -> Data:
        """As many samples as the grid measures on, scored as its protocol says."""
        (test_set,), (loader,) = data.sets, data.loaders
        if self.grid.test_samples is not None:
            loader = in_order(loader, self.grid.test_samples, 0)
        if self.grid.protocol == "published":
            test_set = replace(test_set, options={**test_set.options, **PUBLISHED.get(test_set.task, {})})
        return Data((test_set,), (loader,))


def _names(modules: Sequence[LightningDataModule], grid: Grid) -> dict[str, str]:
    """A name of its own for each different data set, in the grid's order; of equal names all but the first numbered."""
    names: dict[str, str] = {}
    for module in modules:
        name = described(module).name
        numbered = (f"{name} {number}" for number in itertools.count(2))
        free = name if name not in names.values() else next(other for other in numbered if other not in names.values())
        names.setdefault(grid.signature(module), free)
    return names
