"""Fusion of models whose tasks differ: each keeps its head on one merged body, or heads are joined by label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.evaluation.results import END_MODEL
from fusionlab.forward import LABELS
from fusionlab.fused import Candidate, TestSet
from fusionlab.fusion import FusionModule
from fusionlab.heads import (
    align_bodies,
    body_blueprint,
    body_states,
    gauge_bodies,
    merge_heads,
    split_heads,
    under_head_of,
    with_labels,
    with_union_heads,
)
from fusionlab.matching.recipe import Recipe
from fusionlab.models import with_state
from fusionlab.statistics import Activations, Grams, Statistics, basis_of
from fusionlab.symmetry import Alignment, Blueprint

Heads = Literal["merged", "union", "own"]
# No label that a model does not know may win.
NEVER = -1e4


class TaskModels(nn.Module):
    """One merged body under several heads.

    Args:
        models: one for each task, in the order of the end models.
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        self.tasks = nn.ModuleList(models)


class OwnHeadsFusionModule(FusionModule):
    """`FusionModule` whose end models keep their own heads: only bodies are matched and merged.

    Every test set belongs to one end model, and that model's head answers there.
    """

    def describe(self, models: Mapping[str, nn.Module]) -> Blueprint:
        """The blueprint of the bodies."""
        if len(models) < 2:
            raise InputError(f"{len(models)} end model was given; expected at least two")
        body_states(list(models.values()))
        return body_blueprint(next(iter(models.values())))

    def refuse_options(self) -> None:
        """Refuse what compares outputs, which differ from head to head.

        Raises:
            InputError: a matching that runs the models, a method that scores merges, a correction or polish.
        """
        for name, recipe in self.matchings.items():
            if recipe.needs_inputs:
                raise InputError(
                    f"matching {name!r} compares what models compute, which needs one head for all of them; expected "
                    f"a matching by weights, or heads to be merged or union"
                )
        _refuse_scoring(self.needs, "own")
        for option, wanted in (("correct", self.correct), ("polish", self.polish is not None)):
            if wanted:
                raise InputError(f"{option} needs one head for all models; expected heads to be merged or union")

    def states(self, models: Sequence[nn.Module]) -> list[dict[str, Tensor]]:
        """The parameters of the bodies."""
        return body_states(models)

    def describe_base(self, base: nn.Module) -> nn.Module:
        """The base model, whatever its head is, once its body is known to fit."""
        body_states([self.end_models[0], base])
        return base.eval()

    def moved(self, model: nn.Module, alignment: Alignment) -> dict[str, Tensor]:
        """The parameters of a model's body in another basis."""
        found = under_head_of(alignment, model).apply(model.state_dict())
        return {name: found[name] for name in self.states([model])[0]}

    def gauges(self, models: Sequence[nn.Module], recipe: Recipe) -> list[Alignment]:
        """What brings each whole model into the gauge of a recipe."""
        return gauge_bodies(models, recipe.weights)

    def align(self, models: Sequence[nn.Module], recipe: Recipe) -> list[Alignment]:
        """Alignments of whole models, found by their bodies."""
        return align_bodies(models, recipe.weights, self.anchor)

    def combine(
        self,
        method: str,
        models: Sequence[nn.Module],
        statistics: Sequence[Mapping[str, Statistics]],
        base: Mapping[str, Tensor] | None,
    ) -> nn.Module:
        """The merged body under each model's head."""
        found = list(models)
        bodies = self.states(found)
        for index, (known, model) in enumerate(zip(statistics, found, strict=True)):
            for value in known.values():
                value.check(model.state_dict(), f"model {index}")
        of_bodies = [
            {kind: _of_body(value, body) for kind, value in known.items()}
            for known, body in zip(statistics, bodies, strict=True)
        ]
        return TaskModels(split_heads(self.merged_state(method, found, of_bodies, base), found))

    def scored(self, candidate: Candidate, test_set: TestSet) -> nn.Module | None:
        """The model under the head of the test set's owner."""
        if test_set.owner is None:
            raise InputError(
                f"{test_set.name} belongs to no end model, and each keeps its own head; expected one data module for "
                f"each model and none out of domain"
            )
        if isinstance(candidate.model, TaskModels):
            return candidate.model.tasks[test_set.owner]
        return candidate.model if candidate.models == (self.names[test_set.owner],) else None


def _refuse_scoring(needs: Mapping[str, Sequence[str]], heads: Heads) -> None:
    """Refuse methods that score merges: labels of the data they choose by are not places among a merge's own."""
    for method, needed in needs.items():
        if "score" in needed:
            raise InputError(
                f"method {method!r} chooses by scores, which need one head with the labels of the data, and heads is "
                f"{heads!r}; expected heads to be merged, or another method"
            )


def _of_body(statistics: Statistics, body: Mapping[str, Tensor]) -> Statistics:
    """The part of a whole model's statistics that is about its body."""
    changes: dict[str, Any] = {"basis": basis_of(body)}
    if isinstance(statistics, Grams | Activations):
        changes["maps"] = {name: linear for name, linear in statistics.maps.items() if name in body}
    return replace(statistics, **changes)


class UnionHeadsFusionModule(FusionModule):
    """`FusionModule` of classifiers whose labels differ: heads are joined by label name, and a label is merged only
    from the models that know it.
    """

    def __init__(self, models: Mapping[str, nn.Module], *arguments: Any, **keywords: Any) -> None:
        self.union = with_union_heads(list(models.values()))
        super().__init__(dict(zip(models, self.union.models, strict=True)), *arguments, **keywords)
        self.known = self.union.known
        self._silenced: dict[tuple[str, ...], nn.Module] = {}

    def refuse_options(self) -> None:
        """Refuse methods that score merges by the data's own numbers of labels.

        Raises:
            InputError: such a method.
        """
        _refuse_scoring(self.needs, "union")

    def describe_base(self, base: nn.Module) -> nn.Module:
        """The base model with a head of all labels, so that it fits; a merge takes no label's row from it."""
        return super().describe_base(with_labels(base, self.union.labels))

    def combine(
        self,
        method: str,
        models: Sequence[nn.Module],
        statistics: Sequence[Mapping[str, Statistics]],
        base: Mapping[str, Tensor] | None,
    ) -> nn.Module:
        """The merge, each label's row from those that know it."""
        return merge_heads(super().combine(method, models, statistics, base), models, self.union, self.weights)

    def scored(self, candidate: Candidate, test_set: TestSet) -> nn.Module | None:
        """An end model never answers with a label that it does not know."""
        if candidate.method != END_MODEL:
            return candidate.model
        if candidate.models not in self._silenced:
            index = self.names.index(candidate.models[0])
            self._silenced[candidate.models] = self._without_unknown(candidate.model, self.union.known[index])
        return self._silenced[candidate.models]

    def labels(self, batch: Mapping[str, Tensor], test_set: TestSet) -> Mapping[str, Tensor]:
        """Labels as places among the joined ones, by name."""
        if test_set.class_names is None or tuple(test_set.class_names) == self.union.labels:
            return batch
        if missing := [name for name in test_set.class_names if name not in self.union.labels]:
            raise InputError(f"no end model knows the label {missing[0]!r}; expected some of {self.union.labels}")
        places = torch.tensor([self.union.labels.index(name) for name in test_set.class_names])
        labels = batch[LABELS]
        return {**batch, LABELS: torch.where(labels >= 0, places.to(labels.device)[labels.clamp(min=0)], labels)}

    def _without_unknown(self, model: nn.Module, known: Tensor) -> nn.Module:
        state = dict(model.state_dict())
        for layer in self.union.layers:
            if (name := f"{layer}.bias") in state:
                state[name] = torch.where(known.to(state[name].device), state[name], NEVER)
        return with_state(model, state).to(next(model.parameters()).device)


FUSIONS: dict[Heads, type[FusionModule]] = {
    "merged": FusionModule,
    "union": UnionHeadsFusionModule,
    "own": OwnHeadsFusionModule,
}
