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
from fusionlab.symmetry import Alignment


class PublishedFuser(Fuser):
    """A fuser with those faults."""

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

    def statistics_of(
        self, index: int, model: nn.Module, needs: Sequence[str], origin: tuple[nn.Module, Alignment] | None
    ) -> Stages[dict[str, Statistics]]:
        """As `Fuser.statistics_of`; a twin gets its end model's statistics, in the wrong basis."""
        if origin is None:
            return (yield from super().statistics_of(index, model, needs, None))
        stale = yield from super().statistics_of(index, origin[0], needs, None)
        basis = basis_of(model.state_dict())
        return {kind: replace(statistics, basis=basis) for kind, statistics in stale.items()}
