"""The matchings of a fusion: alignments found once, and twins that are checked."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from torch import nn

from fusionlab.evaluation.preservation import check_preservation
from fusionlab.fusion.distances import distances_to_anchor
from fusionlab.fusion.heads import HeadStrategy
from fusionlab.fusion.results import Fused, Matched
from fusionlab.inputs import Inputs
from fusionlab.matching.align_models import Aligned
from fusionlab.matching.recipe import Recipe
from fusionlab.matching.workplace import HERE
from fusionlab.stages import Stages
from fusionlab.symmetry import Blueprint


class Matchings:
    """Finds what brings end models into one basis, for each matching once.

    Attributes:
        place: where it is computed.

    Args:
        heads: how the models' heads are treated.
        end_models: in order, of one architecture; not modified.
        blueprint: of what is matched.
        recipes: by the name of the matching.
        fused: where twins and distances are kept; it says which model is the anchor.
        inputs: gives what matching may look at, when it is needed.
    """

    def __init__(
        self,
        heads: HeadStrategy,
        end_models: Sequence[nn.Module],
        blueprint: Blueprint,
        recipes: Mapping[str, Recipe],
        fused: Fused,
        inputs: Callable[[], Inputs | None],
    ) -> None:
        self.heads, self.end_models, self.blueprint, self.recipes = heads, end_models, blueprint, recipes
        self.fused, self._inputs = fused, inputs
        self.place = HERE
        self._aligned: dict[str, tuple[Aligned, float]] = {}

    def align(self, name: str) -> Stages[tuple[Aligned, float]]:
        """The alignments of one of the matchings and its recipe, and how many seconds they took to find.

        Raises:
            InputError: data is needed and there is none.
        """
        if name not in self._aligned:
            start = time.perf_counter()
            recipe, anchor = self.recipes[name], self.fused.anchor
            found = yield from self.heads.align(
                self.end_models, self.blueprint, recipe, anchor, self._inputs(), name, self.place
            )
            self._aligned[name] = found, time.perf_counter() - start
        return self._aligned[name]

    def match(self, name: str) -> Stages[Matched]:
        """All end models matched by one of the matchings, with twins that are checked to compute the same.

        Raises:
            InputError: data is needed and there is none, or a function changed.
        """
        if name not in self.fused.matched:
            (alignments, recipe), seconds = yield from self.align(name)
            start, models = time.perf_counter(), self.end_models
            twins = []
            for alignment, model in zip(alignments, models, strict=True):
                twins.append(self.place.twin(alignment, model))
                self.place.rest(twins[-1])
            seconds += time.perf_counter() - start
            checks = [
                check_preservation(model, twin, alignment)
                for model, twin, alignment in zip(models, twins, alignments, strict=True)
            ]
            self.fused.matched[name] = Matched(alignments, twins, checks, seconds, recipe)
            self.fused.distances += distances_to_anchor(
                name, self.recipes[name], self.heads.models, twins, self.fused.anchor, self.heads, self.blueprint
            )
        return self.fused.matched[name]
