"""The merge methods of a fusion: refused before any matching, and their results as models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from torch import Tensor, nn

from fusionlab.evaluation.task_scores import score_of
from fusionlab.fusion.finishing import normalised
from fusionlab.fusion.results import TestSet
from fusionlab.inputs import Inputs
from fusionlab.merging import check_merge, find_method, merge_states
from fusionlab.models import with_state
from fusionlab.search import Settings
from fusionlab.statistics import Statistics
from fusionlab.symmetry import Blueprint
from fusionlab.types import State


def refuse_methods(
    methods: Mapping[str, Mapping[str, Any]], states: Sequence[State], weights: Sequence[float], base: State | None
) -> None:
    """Refuse now what a merge would refuse after all matching.

    Args:
        methods: hyperparameters by the name of the method.
        states: the parameters of the end models, as they come.
        weights: of the models.
        base: the parameters of the base model; None if none was given.

    Raises:
        InputError: a base model that is missing, or hyperparameters that do not fit.
    """
    for name, values in methods.items():
        if base is None and "base" in find_method(name).requires(**values):
            raise find_method(name).missing("base")
        check_merge(states, name, weights, values, base)


def with_merged(model: nn.Module, state: State) -> nn.Module:
    """A model with the parameters of a merged state, and its own others.

    Args:
        model: not modified.
        state: parameters by name, not all of them where others are kept.
    """
    return with_state(model, {**model.state_dict(), **state})


@dataclass(frozen=True)
class Merging:
    """One merge of a fusion: a method, its settings, and what it may look at.

    Attributes:
        names: of the models.
        method: its name.
        settings: hyperparameters, and weights of the models.
        seed: of anything random.
        blueprint: of what is merged.
        base: the base model's parameters in the models' basis; None if none was given.
        models: end models, or their twins.
        anchor: the end model whose unmerged parts a merge has that is scored.
        given: inputs that were given; None for none.
        inputs: these, or synthetic ones where the fusion drew some.
        told: what the method tells of its merge, a sentence each; empty until `state` is called.
    """

    names: Sequence[str]
    method: str
    settings: Settings
    seed: int
    blueprint: Blueprint
    base: State | None
    models: Sequence[nn.Module]
    anchor: nn.Module
    given: Inputs | None
    inputs: Inputs | None
    told: list[str] = field(default_factory=list)

    def state(self, states: Sequence[State], statistics: Sequence[Mapping[str, Statistics]]) -> dict[str, Tensor]:
        """The merged parameters of states that share a basis with their statistics, the base and the models.

        Args:
            states: what is merged of each model.
            statistics: of each.

        Raises:
            InputError: what the method refuses.
        """
        held_out = self.inputs is not None and self.inputs.held_out
        return merge_states(
            states,
            self.method,
            self.settings.weights,
            blueprint=self.blueprint,
            statistics=statistics if any(statistics) else (),
            base=self.base,
            score=self._score if held_out else None,
            seed=self.seed,
            inputs=() if self.given is None else self.given.own,
            model=lambda state, index: with_merged(self.models[index], state),
            names=self.names,
            tell=self.told.append,
            **self.settings.hyperparameters,
        )

    def _score(self, state: State) -> float:
        """The score of a merged state on inputs that were held out; higher is better.

        Of several sets whose facts are known it is the mean, of others that of all together.
        """
        assert self.inputs is not None
        model, sets = normalised(with_merged(self.anchor, state), self.inputs), self.inputs.held_out
        known = [TestSet.of(facts, facts.name) for _, facts in self.inputs.held_out_facts]
        if len(known) < len(sets):
            return score_of(model, sets)
        return fmean(score_of(model, [batches], one.scores(model)) for batches, one in zip(sets, known, strict=True))
