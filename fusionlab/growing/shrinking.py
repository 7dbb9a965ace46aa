"""A model brought into a smaller architecture: what says most in each space is kept, and the rest is cut off."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

import torch
from torch import Tensor, nn

from fusionlab.dtypes import in_types, types_of
from fusionlab.errors import InputError
from fusionlab.evaluation.preservation import random_logits
from fusionlab.growing.axes import STREAMS, Widening
from fusionlab.growing.choices import difference
from fusionlab.growing.embedding import Embedding
from fusionlab.growing.growth import (
    embedding_of,
    exact_embedding,
    grown_sizes,
    is_tied,
    numbers_of,
    stream_sizes,
    untied_as,
)
from fusionlab.growing.layers import Placement, layer_stacks, lists_of, placements
from fusionlab.growing.no_account import numbers_of_no_account
from fusionlab.growing.sorting import smaller_sizes, to_the_front
from fusionlab.growing.target import larger_model
from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.symmetry.any_model import blueprint
from fusionlab.symmetry.axes import sides_of
from fusionlab.symmetry.blueprint import FOLDED
from fusionlab.symmetry.leaves import leaves
from fusionlab.symmetry.stacks import apart
from fusionlab.types import Model


@dataclass(frozen=True)
class Shrinkage(Generic[Model]):
    """A model in a smaller architecture, and what was done to it.

    Attributes:
        model: the shrunk model.
        sizes: by role of a space, its smallest and largest size in the large model and in the shrunk one, where it
            shrank.
        placements: the stacks of layers that lost some, and which were kept.
        parameters: how many numbers the large model has, and the shrunk one.
        differs: largest difference of the logits of both in float64 on random inputs, relative to the largest.
    """

    model: Model
    sizes: dict[str, tuple[tuple[int, int], tuple[int, int]]]
    placements: tuple[Placement, ...]
    parameters: tuple[int, int]
    differs: float


@dataclass(frozen=True)
class Shrinking:
    """All that was decided about a model that is cut, so that each parameter can be made by itself.

    Attributes:
        embedding: the smaller architecture in the model's own.
        widening: the maps, by whose inverses it is cut.
        alignment: that brings the model into a basis in which comes first what stays.
    """

    embedding: Embedding
    widening: Widening
    alignment: Alignment

    def parameter(self, name: str, tensor: Tensor) -> Tensor:
        """A parameter of the shrunk model.

        Args:
            name: in the smaller architecture, as its blueprint has it.
            tensor: the large model's that it is cut out of, in float64 and in the gauge of the alignment's blueprint.
        """
        return self.embedding.cut(name, self.alignment.apply_to(self.embedding.targets[name], tensor), self.widening)


@torch.no_grad()
def shrunk(model: Model, like: Any) -> Shrinkage[Model]:
    """A model brought into a smaller architecture: a grown model exactly, any other as near as its weights tell.

    In each space the part that the smaller one can hold is chosen by weights, see `to_the_front`; layers stay that
    write most. The model is brought into a basis in which that part comes first, which changes no function, and cut
    by the inverse of the map that grows the smaller architecture into its own.

    Args:
        model: the large model; not modified.
        like: a model of the same class that is as small or smaller in every dimension, or a config of one; its numbers
            are not looked at.

    Raises:
        InputError: another class or vocabulary, a dimension in which the other model is larger, or one that cannot be
            cut (see `to_the_front`).
        SymmetryError: an architecture whose blueprint is not found.
    """
    refuse_another_class(model, like)
    small = larger_model(model, like).eval()
    for name, parameter in small.named_parameters():
        parameter.copy_(numbers_of_no_account(name, parameter))
    large = untied_as(model, small).eval()
    wide, narrow = blueprint(large), blueprint(small)
    refuse_tied(small, wide, narrow)
    whole = wide.stacked(copy.deepcopy(large).double().state_dict())
    places = kept_layers(small, large, lambda: Alignment.identity(folded(wide)).apply(whole))
    embedding = embedding_of(small, large, places)
    _, fit = exact_embedding(embedding, small, large, random_logits(copy.deepcopy(small).double(), narrow.inputs))
    # Key biases, which softmax ignores, say nothing about heads; and the way of value biases can be kept whole.
    state = Alignment.identity(cleared(embedding)).apply(whole)
    found = decided(embedding, fit.widening, state)
    made = {name: found.parameter(name, state[target]) for name, target in embedding.targets.items()}
    cut = apart(made, narrow.stacks)
    reference = random_logits(copy.deepcopy(large).double(), wide.inputs)
    result = in_types(small, _types(small, large, embedding))
    result.load_state_dict(cut)
    exact = copy.deepcopy(small).double()
    exact.load_state_dict(cut)
    differs = difference(random_logits(exact, wide.inputs), reference)
    sizes = shrunk_sizes(embedding.small, fit.widening)
    return Shrinkage(result.eval(), sizes, shorter(places), (numbers_of(model), numbers_of(result)), differs)


def _types(small: nn.Module, large: nn.Module, embedding: Embedding) -> dict[str, torch.dtype]:
    """The types of the shrunk model's numbers: each that of the large model's parameter that it is cut out of."""
    own, stacks = types_of(large), embedding.large.stacks
    stack_of = {entry: stack for stack, entries in embedding.small.stacks.items() for entry in entries}
    sources = {name: embedding.targets[stack_of.get(name, name)] for name in types_of(small)}
    return {name: own[stacks.get(source, (source,))[0]] for name, source in sources.items()}


def shrunk_sizes(small: Blueprint, widening: Widening) -> dict[str, tuple[tuple[int, int], tuple[int, int]]]:
    """The smallest and largest sizes of the spaces that shrank, before and after, by role.

    Args:
        small: the smaller architecture's blueprint.
        widening: by whose inverse the model is cut.
    """
    return {role: (many, few) for role, (few, many) in grown_sizes(small, widening).items()}


def refuse_another_class(model: nn.Module, like: Any) -> None:
    """Refuse a smaller model of another class than the large one's.

    Args:
        model: the large model.
        like: what gives the size.

    Raises:
        InputError: it is a model, and of another class.
    """
    if isinstance(like, nn.Module) and type(like) is not type(model):
        raise InputError(
            f"the model to shrink is a {type(model).__name__} and the smaller one a {type(like).__name__}; expected "
            f"one class"
        )


def refuse_tied(small: nn.Module, wide: Blueprint, narrow: Blueprint) -> None:
    """Refuse a narrower stream where the output embeddings are the input embeddings.

    Args:
        small: one of the smaller architecture.
        wide: the large model's blueprint.
        narrow: the small one's.

    Raises:
        InputError: they are.
    """
    if is_tied(small) and stream_sizes(wide) != stream_sizes(narrow):
        raise InputError(
            "the output embeddings are the input embeddings, so that the residual stream cannot be rotated and none of "
            "it can be cut; expected a model whose embeddings are untied (--untie), or a config of the same width"
        )


def folded(wide: Blueprint) -> Blueprint:
    """The blueprint in the gauge in which it is counted what layers write."""
    return wide.in_gauge((FOLDED,))


def cleared(embedding: Embedding) -> Blueprint:
    """The large model's blueprint in the gauge that it is cut in."""
    return embedding.large.without_biases()


def kept_layers(small: nn.Module, large: nn.Module, state: Callable[[], Mapping[str, Tensor]]) -> tuple[Placement, ...]:
    """The layers of the large model that stay: those that write most to streams, in order.

    Args:
        small: one of the smaller architecture; its numbers are not looked at.
        large: the large model; neither are its own.
        state: gives its parameters in float64 and in the gauge of `folded`; called where layers have to go.

    Raises:
        InputError: more layers than the large model has, or layers of a kind that it lacks.
    """
    wide, lists = blueprint(large), lists_of(blueprint(small).stacks)
    lengths = layer_stacks(large)
    shorter = {
        path: length
        for path, length in layer_stacks(small, lists).items()
        if path in lengths and lengths[path] > length
    }
    written = _written(state(), wide) if shorter else {}
    costs = {path: _costs(f"{path}.", length, lengths[path], written) for path, length in shorter.items()}
    return placements(small, large, costs, lists)


def shorter(places: Sequence[Placement]) -> tuple[Placement, ...]:
    """The stacks that lose layers."""
    return tuple(placement for placement in places if placement.deepens)


def decided(embedding: Embedding, widening: Widening, state: Mapping[str, Tensor]) -> Shrinking:
    """The decision of what stays of every space of a large model.

    Args:
        embedding: the smaller architecture in the large model's.
        widening: the maps with which that is exact.
        state: of the large model, in float64 and in the gauge of `cleared`; see `to_the_front`.

    Raises:
        InputError: a dimension that cannot be cut.
    """
    sizes = smaller_sizes(embedding.small, embedding.large, embedding.targets)
    return Shrinking(embedding, widening, to_the_front(state, cleared(embedding), sizes))


def _written(state: Mapping[str, Tensor], large: Blueprint) -> dict[str, float]:
    """The squared length of what each parameter writes to a stream, by its name."""
    found: dict[str, float] = {}
    streams = {space.name for space in large.spaces.values() if space.role in STREAMS}
    for name, axes in large.parameters.items():
        writing = [dim for dim, axis in enumerate(axes) if any(not d and s in streams for s, d in sides_of(axis))]
        if not writing:
            continue
        tensor = state[name]
        for dim in writing:
            for leaf in leaves(axes[dim], tensor, dim):
                if leaf.space in streams and not leaf.is_dual:
                    found[name] = found.get(name, 0.0) + float(leaf.view.square().sum())
    return found


def _costs(prefix: str, few: int, many: int, written: dict[str, float]) -> Tensor:
    """The cost of keeping each layer of a stack: the less, the more it writes; shape ``(few, many)``."""
    lengths = torch.zeros(many, dtype=torch.float64)
    for name, square in written.items():
        index = name.removeprefix(prefix).partition(".")[0]
        if name.startswith(prefix) and index.isdigit():
            lengths[int(index)] += square
    return (-lengths / lengths.max().clamp(min=1e-300)).expand(few, many)
