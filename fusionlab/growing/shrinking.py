"""A model brought into a smaller architecture: what says most in each space is kept, and the rest is cut off."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic

import torch
from torch import Tensor, nn

from fusionlab.dtypes import in_types, main_dtype
from fusionlab.errors import InputError
from fusionlab.evaluation.preservation import random_logits
from fusionlab.growing.axes import STREAMS
from fusionlab.growing.growth import embedding_of, exact_embedding, is_tied, stream_sizes, untied_as
from fusionlab.growing.layers import Placement, layer_stacks, lists_of, placements, renamed
from fusionlab.growing.sorting import smaller_sizes, sorted_forward
from fusionlab.growing.target import larger_model
from fusionlab.symmetry import Blueprint
from fusionlab.symmetry.any_model import blueprint
from fusionlab.symmetry.biases import clear_biases
from fusionlab.symmetry.blueprint import FOLDED
from fusionlab.symmetry.folding import fold
from fusionlab.symmetry.leaves import leaves
from fusionlab.symmetry.stacks import apart
from fusionlab.types import Model

# The size of the numbers that a small model of no account has beside those it starts with.
_NOISE = 0.1


@dataclass(frozen=True)
class Shrinkage(Generic[Model]):
    """A model in a smaller architecture, and what was done to it.

    Attributes:
        model: the shrunk model.
        placements: the stacks of layers that lost some, and which were kept.
        parameters: how many numbers the large model has, and the shrunk one.
        differs: largest difference of the logits of both in float64 on random inputs, relative to the largest.
    """

    model: Model
    placements: tuple[Placement, ...]
    parameters: tuple[int, int]
    differs: float


@torch.no_grad()
def shrunk(model: Model, like: Any) -> Shrinkage[Model]:
    """A model brought into a smaller architecture: a grown model exactly, any other as near as its weights tell.

    In each space the part that the smaller one can hold is chosen by weights, see `sorted_forward`; layers stay that
    write most. The model is brought into a basis in which that part comes first, which changes no function, and cut
    by the inverse of the map that grows the smaller architecture into its own.

    Args:
        model: the large model; not modified.
        like: a model of the same class that is as small or smaller in every dimension, or a config of one; its numbers
            are not looked at.

    Raises:
        InputError: another class or vocabulary, a dimension in which the other model is larger, or one that cannot be
            cut (see `sorted_forward`).
        SymmetryError: an architecture whose blueprint is not found.
    """
    if isinstance(like, nn.Module) and type(like) is not type(model):
        raise InputError(
            f"the model to shrink is a {type(model).__name__} and the smaller one a {type(like).__name__}; expected "
            f"one class"
        )
    small = _of_no_account(larger_model(model, like))
    large = untied_as(model, small).eval()
    wide, narrow = blueprint(large), blueprint(small)
    if is_tied(small) and stream_sizes(wide) != stream_sizes(narrow):
        raise InputError(
            "the output embeddings are the input embeddings, so that the residual stream cannot be rotated and none of "
            "it can be cut; expected a model whose embeddings are untied (--untie), or a config of the same width"
        )
    whole = wide.stacked(copy.deepcopy(large).double().state_dict())
    folded = whole if wide.after_folding is None else fold(whole, wide.in_gauge((FOLDED,)))
    written = _written(folded, wide)
    lengths, lists = layer_stacks(large), lists_of(narrow.stacks)
    costs = {
        path: _costs(f"{path}.", length, lengths[path], written)
        for path, length in layer_stacks(small, lists).items() if path in lengths and lengths[path] > length
    }  # fmt: skip
    places = placements(small, large, costs, lists)
    embedding = embedding_of(small, in_types(large, {}), places)
    _, fit = exact_embedding(embedding, small, large, random_logits(copy.deepcopy(small).double(), narrow.inputs))
    state = folded if embedding.large.folded else whole
    # Key biases, which softmax ignores, say nothing about heads; and the way of value biases can be kept whole.
    state = clear_biases(state, embedding.large)
    names = {name: renamed(name, places) for name in embedding.state}
    sizes = smaller_sizes(embedding.small, embedding.large, names)
    found = apart(embedding.cut(sorted_forward(state, embedding.large, sizes), fit.widening), narrow.stacks)
    reference = random_logits(copy.deepcopy(large).double(), wide.inputs)
    result = small.to(main_dtype(model.state_dict()))
    result.load_state_dict(found)
    exact = copy.deepcopy(small).double()
    exact.load_state_dict(found)
    differs = float((random_logits(exact, wide.inputs) - reference).abs().max() / (reference.abs().max() or 1.0))
    counts = tuple(sum(parameter.numel() for parameter in one.parameters()) for one in (model, result))
    shorter = tuple(placement for placement in places if placement.deepens)
    return Shrinkage(result.eval(), shorter, (counts[0], counts[1]), differs)


def _of_no_account(model: Model) -> Model:
    """A model whose numbers are none that hide what its parts do, such as zeros."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.add_(_NOISE * torch.randn(parameter.shape, generator=generator).to(parameter))
    return model.eval()


def _written(state: Mapping[str, Tensor], large: Blueprint) -> dict[str, float]:
    """The squared length of what each parameter writes to a stream, by its name."""
    found: dict[str, float] = {}
    for name, axes in large.parameters.items():
        for dim, axis in enumerate(axes):
            for leaf in leaves(axis, state[name], dim):
                if leaf.space is not None and not leaf.is_dual and large.spaces[leaf.space].role in STREAMS:
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
