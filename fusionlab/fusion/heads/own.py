"""Heads that each task keeps, on one merged body."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.fusion.heads.bodies import (
    align_bodies,
    body_blueprint,
    body_states,
    gauge_bodies,
    split_heads,
    under_head_of,
)
from fusionlab.fusion.heads.of_base import FittedBase, fitted_base
from fusionlab.fusion.heads.refusals import refuse_scoring
from fusionlab.fusion.heads.strategy import HeadStrategy, MergeStates, State, StatisticsByKind
from fusionlab.fusion.plan import FusionPlan
from fusionlab.fusion.results import Candidate, TestSet
from fusionlab.inputs import Inputs
from fusionlab.matching.align_models import Aligned
from fusionlab.matching.recipe import Recipe
from fusionlab.matching.workplace import HERE, Workplace
from fusionlab.stages import Stages
from fusionlab.statistics import Activations, Grams, Statistics, basis_of
from fusionlab.symmetry import Alignment, Blueprint, SymmetryError


class TaskModels(nn.Module):
    """One merged body under several heads.

    Args:
        models: one for each task, in the order of the end models.
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        self.tasks = nn.ModuleList(models)

    def sharing(self) -> TaskModels:
        """A copy whose tasks have one body in common; heads are frozen, and stay their tasks' own."""
        found = copy.deepcopy(self)
        first, *others = found.tasks
        body = set(body_states([first, *others])[0])
        own = dict(first.named_parameters(remove_duplicate=False))
        for task in others:
            for name, _ in list(task.named_parameters(remove_duplicate=False)):
                path, _, last = name.rpartition(".")
                if name in body:
                    setattr(task.get_submodule(path), last, own[name])
        for task in found.tasks:
            for name, parameter in task.named_parameters():
                parameter.requires_grad_(name in body and parameter.requires_grad)
        return found

    @staticmethod
    def answering(merged: nn.Module, place: int | None) -> nn.Module:
        """The body under the head of the task in a place, for `polish`."""
        assert isinstance(merged, TaskModels)
        return merged.tasks[place or 0]


class OwnHeads(HeadStrategy):
    """End models keep their own heads: only bodies are matched and merged.

    Every test set belongs to one end model, and that model's head answers there.
    """

    def refuse(self, plan: FusionPlan, needs: Mapping[str, Sequence[str]]) -> None:
        """Refuse what compares outputs, which differ from head to head.

        Raises:
            InputError: a matching that runs the models, a method that scores merges, or a correction.
        """
        for name, recipe in plan.matchings.items():
            if recipe.needs_inputs:
                raise InputError(
                    f"matching {name!r} compares what models compute, which needs one head for all of them; expected "
                    f"a matching by weights, or heads to be merged or union"
                )
        refuse_scoring(needs, "own")
        if plan.correct:
            raise InputError("correct needs one head for all models; expected heads to be merged or union")

    def blueprint(self) -> Blueprint:
        """The blueprint of the bodies."""
        models = list(self.models.values())
        if len(models) < 2:
            raise InputError(f"{len(models)} end model was given; expected at least two")
        return body_blueprint(models)

    def refuse_misfits(self) -> None:
        """Refuse bodies that do not fit each other, which their blueprint is found by."""
        with suppress(SymmetryError):
            self.blueprint()

    def states(self, models: Sequence[nn.Module]) -> list[State]:
        """The parameters of the bodies: of what all end models have below their heads."""
        return body_states(models, list(self.models.values()))

    def base(self, base: nn.Module) -> FittedBase:
        """The base model, whatever its head is, once its body is known to fit."""
        first = next(iter(self.models.values()))
        fitted = fitted_base(base, first)
        self.states([first, fitted.model])
        fitted.model.eval()
        return fitted

    def moved(self, model: nn.Module, alignment: Alignment) -> State:
        """The parameters of a model's body in another basis."""
        found = under_head_of(alignment, model).apply(model.state_dict())
        return {name: found[name] for name in self.states([model])[0]}

    def gauges(self, models: Sequence[nn.Module], blueprint: Blueprint, recipe: Recipe) -> list[Alignment]:
        """Alignments that bring each whole model into the gauge of a recipe."""
        return gauge_bodies(models, recipe.options)

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
        """Alignments of whole models, found by their bodies."""
        yield from ()
        return Aligned(align_bodies(models, recipe.options, anchor, place), recipe)

    def combine(
        self,
        merge: MergeStates,
        models: Sequence[nn.Module],
        statistics: Sequence[StatisticsByKind],
        weights: Sequence[float],
        anchor: int,
    ) -> nn.Module:
        """The merged body under each model's head."""
        bodies = self.states(models)
        for index, (known, model) in enumerate(zip(statistics, models, strict=True)):
            for value in known.values():
                value.check(model.state_dict(), f"model {index}")
        of_bodies = [
            {kind: of_body(value, body) for kind, value in known.items()}
            for known, body in zip(statistics, bodies, strict=True)
        ]
        return TaskModels(split_heads(merge(bodies, of_bodies), models))

    def scored(self, candidate: Candidate, test_set: TestSet) -> nn.Module | None:
        """The model under the head of the test set's owner."""
        if test_set.owner is None:
            raise InputError(
                f"{test_set.name} belongs to no end model, and each keeps its own head; expected one data module for "
                f"each model and none out of domain"
            )
        if isinstance(candidate.model, TaskModels):
            return candidate.model.tasks[test_set.owner]
        return candidate.model if candidate.models == (list(self.models)[test_set.owner],) else None

    def labels(self, batch: Mapping[str, Tensor], test_set: TestSet) -> Mapping[str, Tensor]:
        return batch


def of_body(statistics: Statistics, body: Mapping[str, Tensor]) -> Statistics:
    """The part of a whole model's statistics that is about its body."""
    changes: dict[str, Any] = {"basis": basis_of(body)}
    if isinstance(statistics, Grams | Activations):
        changes["maps"] = {name: linear for name, linear in statistics.maps.items() if name in body}
    return replace(statistics, **changes)
