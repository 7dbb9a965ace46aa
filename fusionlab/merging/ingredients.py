"""All that a merge method may look at."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from fusionlab.batch_norm import COUNTER
from fusionlab.errors import InputError
from fusionlab.statistics import Statistics
from fusionlab.types import Batch, State

if TYPE_CHECKING:  # takes as long to import as all that a merge of two small models does
    from fusionlab.symmetry import Blueprint

Kind = TypeVar("Kind", bound=Statistics)
# Numbers in a piece of a flattened parameter: as many as stay in a processor's cache while they are merged.
PIECE = 2**17


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
        start: where the pieces of parameters in the states begin in the flattened parameters, a multiple of `PIECE`; 0
            for whole ones.
        surveyed: what the method's survey found, of a method that has one.
        inputs: for each model batches like those that it was trained on.
        model: makes a model of a merged state and one of the models' places, whose head it has where heads are not
            merged.
        names: of the models, for what is told; empty for their places.
        tell: is given a sentence on what the method chose or found, such as the models that it kept. It begins with a
            capital letter, ends with a full stop and does not name the method, which whoever shows it puts in front.
            Only methods that are given whole models (`MergeMethod.is_of_models`) are heard.
    """

    states: Sequence[State]
    weights: Sequence[float]
    blueprint: Blueprint | None
    statistics: Sequence[Mapping[str, Statistics]]
    base: State | None
    score: Callable[[State], float] | None
    seed: int
    start: int = 0
    surveyed: Any = None
    inputs: Sequence[Iterable[Batch]] = ()
    model: Callable[[State, int], nn.Module] | None = None
    names: Sequence[str] = ()
    tell: Callable[[str], object] = lambda _: None

    def called(self, index: int) -> str:
        """The name of one of the models in a sentence: its own, or ``model 0`` by its place."""
        return self.names[index] if self.names else f"model {index}"

    def gathered(self, kind: type[Kind]) -> list[Kind]:
        """The statistics of one kind, one for each model, in order.

        Raises:
            InputError: a model without.
        """
        found = [statistics.get(kind.kind) for statistics in self.statistics]
        if len(found) < len(self.states) or not all(isinstance(statistics, kind) for statistics in found):
            raise InputError(f"{kind.kind} statistics are missing; expected one for each of {len(self.states)} models")
        return [statistics for statistics in found if isinstance(statistics, kind)]

    def without(self, names: Container[str]) -> Ingredients:
        """The same without some parameters."""
        return self._where(lambda name: name not in names)

    def only(self, names: Collection[str]) -> Ingredients:
        """The same with some parameters only."""
        chosen = set(names)
        return self._where(lambda name: name in chosen)

    def _where(self, kept: Callable[[str], bool]) -> Ingredients:
        def part(state: State) -> State:
            return {name: state[name] for name in state if kept(name)}

        base = None if self.base is None else part(self.base)
        return replace(self, states=[part(state) for state in self.states], base=base)

    def present(self) -> Ingredients:
        """The same without models that have no weight."""
        kept = [index for index, weight in enumerate(self.weights) if weight > 0]
        states, weights = [self.states[index] for index in kept], [self.weights[index] for index in kept]
        statistics = [self.statistics[index] for index in kept] if self.statistics else ()
        names = [self.called(index) for index in kept]
        return replace(self, states=states, weights=weights, statistics=statistics, names=names)

    def floating(self) -> list[str]:
        """The names of all floating-point parameters and buffers, in order."""
        return [name for name, tensor in self.states[0].items() if tensor.is_floating_point()]

    def mean(self, name: str) -> Tensor:
        """The weighted mean of one parameter, summed in float32 or better, in that type."""
        first = self.states[0][name]
        total = first.to(working_type(first)) * self.weights[0]
        for state, weight in zip(self.states[1:], self.weights[1:], strict=True):
            total.add_(state[name].to(total), alpha=weight)
        return total

    def averaged(self) -> dict[str, Tensor]:
        """The weighted mean of everything, in the first model's types: what a method starts from and changes in part.

        The number of batches that BatchNorm saw in training is the first model's.

        Raises:
            InputError: integer buffers differ between the models; there is no mean of those.
        """
        return self.each(self.mean)

    def each(self, merge: Callable[[str], Tensor]) -> dict[str, Tensor]:
        """A state of what a function gives for every floating-point parameter and buffer, in the first model's types.

        Args:
            merge: for a parameter's name, what it is in the merge.

        Raises:
            InputError: integer buffers differ between the models; there is no mean of those.
        """
        merged = {}
        for name, first in self.states[0].items():
            if first.is_floating_point() and not self._is_shared_mask(name):
                merged[name] = merge(name).to(first.dtype)
                continue
            counts = first.is_floating_point() or name.rpartition(".")[2] == COUNTER
            if not counts and any(not torch.equal(first, state[name]) for state in self.states[1:]):
                raise InputError(f"the integer buffer {name!r} differs between the models; expected equal ones")
            merged[name] = first.clone()
        return merged

    def _is_shared_mask(self, name: str) -> bool:
        """True for what is the same in all models and infinite somewhere, of which differences are no numbers."""
        first = self.states[0][name]
        if first.itemsize == 1 or bool(first.sum(dtype=working_type(first)).isfinite()):
            return False
        infinite = not bool(first.isfinite().all())
        return infinite and all(torch.equal(first, state[name]) for state in self.states[1:])


def working_type(tensor: Tensor) -> torch.dtype:
    """The type that a parameter is merged in: float32 or better."""
    return torch.promote_types(tensor.dtype, torch.float32)


class Survey(Protocol):
    """A look at all parameters of the models before any of them is merged, whatever part of them is in memory."""

    @property
    def dtype(self) -> torch.dtype:
        """The widest of the types that parameters are merged in."""

    def total(self, function: Callable[[Ingredients], Tensor]) -> Tensor:
        """The sum of what a function gives for parts of the models, which together hold each number once.

        Args:
            function: of ingredients that hold some parameters or pieces of them.
        """


@dataclass(frozen=True)
class WholeSurvey:
    """A survey of models that are in memory: of one part."""

    ingredients: Ingredients

    @property
    def dtype(self) -> torch.dtype:
        found = torch.float32
        for name in self.ingredients.floating():
            found = torch.promote_types(found, self.ingredients.states[0][name].dtype)
        return found

    def total(self, function: Callable[[Ingredients], Tensor]) -> Tensor:
        return function(self.ingredients)
