"""Heads that are merged like everything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from fusionlab.fusion.heads.of_base import NAME, FittedBase, fitted_base
from fusionlab.fusion.heads.strategy import HeadStrategy, MergeStates, State, StatisticsByKind
from fusionlab.fusion.plan import FusionPlan
from fusionlab.fusion.results import Candidate, TestSet
from fusionlab.inputs import Inputs
from fusionlab.matching.align import gauged
from fusionlab.matching.align_models import Aligned, align_models
from fusionlab.matching.recipe import Recipe
from fusionlab.matching.workplace import HERE, Workplace
from fusionlab.models import common_blueprint, refuse_unlike, with_state
from fusionlab.stages import Stages
from fusionlab.symmetry import Alignment, Blueprint


class MergedHeads(HeadStrategy):
    """Whole models are matched and merged."""

    def refuse(self, plan: FusionPlan, needs: Mapping[str, Sequence[str]]) -> None:
        """Accept every plan."""

    def blueprint(self) -> Blueprint:
        return common_blueprint(self.models)

    def refuse_misfits(self) -> None:
        refuse_unlike(self.models)

    def states(self, models: Sequence[nn.Module]) -> list[State]:
        return [model.state_dict() for model in models]

    def base(self, base: nn.Module) -> FittedBase:
        name, model = next(iter(self.models.items()))
        fitted = fitted_base(base, model)
        refuse_unlike({name: model, NAME: fitted.model})
        fitted.model.eval()
        return fitted

    def moved(self, model: nn.Module, alignment: Alignment) -> State:
        return alignment.apply(model.state_dict())

    def gauges(self, models: Sequence[nn.Module], blueprint: Blueprint, recipe: Recipe) -> list[Alignment]:
        return gauged(self.states(models), blueprint, recipe.options)[1]

    def align(
        self,
        models: Sequence[nn.Module],
        blueprint: Blueprint,
        recipe: Recipe,
        anchor: int,
        inputs: Inputs | None,
        name: str,
        place: Workplace = HERE,
    ) -> Stages[Aligned]:
        return align_models(models, blueprint, recipe, anchor, inputs, self.known, name, place)

    def combine(
        self,
        merge: MergeStates,
        models: Sequence[nn.Module],
        statistics: Sequence[StatisticsByKind],
        weights: Sequence[float],
        anchor: int,
    ) -> nn.Module:
        return with_state(models[anchor], merge(self.states(models), statistics))

    def scored(self, candidate: Candidate, test_set: TestSet) -> nn.Module | None:
        return candidate.model

    def labels(self, batch: Mapping[str, Tensor], test_set: TestSet) -> Mapping[str, Tensor]:
        return batch
