"""The faults of the published code, on purpose: only for setting the paper's own numbers beside correct ones.

Of the faults that change results (docs/reproduce.md lists all), these are in merging: RegMean's Gram matrices never
reach it in the text experiments, so that it is the plain average; and Fisher information is that of the models before
they were matched. How predictions are decided is in `fusionlab.grid.data_sets`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from fusionlab.fusion import Candidate, Fuser
from fusionlab.stages import Stages
from fusionlab.statistics import Statistics, basis_of
from fusionlab.statistics.store import StatisticsStore
from fusionlab.symmetry import Alignment


class StaleStore(StatisticsStore):
    """A store in which a twin has its end model's statistics, in the wrong basis."""

    def of(
        self, index: int, model: nn.Module, kinds: Sequence[str], twin_of: tuple[nn.Module, Alignment] | None = None
    ) -> Stages[dict[str, Statistics]]:
        """As `StatisticsStore.of`, for a twin with the numbers of its end model."""
        if twin_of is None:
            return (yield from super().of(index, model, kinds))
        stale = yield from super().of(index, twin_of[0], kinds)
        basis = basis_of(model.state_dict())
        return {kind: replace(statistics, basis=basis) for kind, statistics in stale.items()}


class PublishedFuser(Fuser):
    """A fuser with those faults."""

    store_class = StaleStore

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._is_text = any(given.vocabulary is not None for given in self.blueprint.inputs)
        if self._is_text and "regmean" in self.needs:
            # Nothing is gathered for a plain average.
            self.needs["regmean"] = ()

    def merge(self, method: str, matching: str) -> Stages[Candidate]:
        """As `Fuser.merge`; RegMean of text models is the plain average."""
        if method == "regmean" and self._is_text:
            self.plan = replace(self.plan, methods={**self.plan.methods, "simple": {}})
            self.needs["simple"] = ()
            return replace((yield from super().merge("simple", matching)), method=method)
        return (yield from super().merge(method, matching))
