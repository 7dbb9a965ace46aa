"""All that a merge method may look at."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from fusionlab.batch_norm import COUNTER
from fusionlab.errors import InputError
from fusionlab.statistics import Statistics
from fusionlab.symmetry import Blueprint
from fusionlab.types import State

Kind = TypeVar("Kind", bound=Statistics)


@dataclass(frozen=True)
class Ingredients:
    """Models to merge, and what is known about them; a method names what it needs of it when it is registered.

    Attributes:
        states: parameters and buffers by name, the same names and shapes in each, all in one basis.
        weights: one for each model, summing to 1.
        blueprint: of all models; None where nobody knows it.
        statistics: for each model, by kind, in the basis of its state; empty where nothing was gathered.
        base: the model that all were fine-tuned from.
        score: how good a merged state is, higher is better, on data that no result is reported on.
        seed: of anything random.
    """

    states: Sequence[State]
    weights: Sequence[float]
    blueprint: Blueprint | None
    statistics: Sequence[Mapping[str, Statistics]]
    base: State | None
    score: Callable[[State], float] | None
    seed: int

    def gathered(self, kind: type[Kind]) -> list[Kind]:
        """The statistics of one kind, one for each model, in order.

        Raises:
            InputError: a model without.
        """
        found = [statistics.get(kind.kind) for statistics in self.statistics]
        if len(found) < len(self.states) or not all(isinstance(statistics, kind) for statistics in found):
            raise InputError(f"{kind.kind} statistics are missing; expected one for each of {len(self.states)} models")
        return [statistics for statistics in found if isinstance(statistics, kind)]

    def floating(self) -> list[str]:
        """The names of all floating-point parameters and buffers, in order."""
        return [name for name, tensor in self.states[0].items() if tensor.is_floating_point()]

    def mean(self, name: str) -> Tensor:
        """The weighted mean of one parameter, summed in float32 or better, in that type."""
        first = self.states[0][name]
        total = torch.zeros_like(first, dtype=torch.promote_types(first.dtype, torch.float32))
        for state, weight in zip(self.states, self.weights, strict=True):
            total.add_(state[name].to(total), alpha=weight)
        return total

    def averaged(self) -> dict[str, Tensor]:
        """The weighted mean of everything, in the first model's types: what a method starts from and changes in part.

        The number of batches that BatchNorm saw in training is the first model's.

        Raises:
            InputError: integer buffers differ between the models; there is no mean of those.
        """
        merged = {}
        for name, first in self.states[0].items():
            if first.is_floating_point():
                merged[name] = self.mean(name).to(first.dtype)
                continue
            counts = name.rpartition(".")[2] == COUNTER
            if not counts and any(not torch.equal(first, state[name]) for state in self.states[1:]):
                raise InputError(f"the integer buffer {name!r} differs between the models; expected equal ones")
            merged[name] = first.clone()
        return merged
