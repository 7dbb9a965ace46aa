"""Distance between models in parameter space, as a whole and by space and layer (the paper's Figure 4)."""

import math

import torch
from torch import Tensor

from fusionlab.symmetry import Blueprint
from fusionlab.symmetry.axes import Axis, spaces_of
from fusionlab.symmetry.leaves import leaves
from fusionlab.types import State

OTHER = "other"


def parameter_distance(first: State, second: State) -> float:
    """Euclidean distance over all floating-point parameters, summed in float64."""
    names = [name for name, tensor in first.items() if tensor.is_floating_point()]
    return math.sqrt(sum(_squared(first[name], second[name]) for name in names))


@torch.no_grad()
def distance_by_space(first: State, second: State, blueprint: Blueprint) -> dict[tuple[str, int | None], float]:
    """Euclidean distance of the floating-point parameters that belong to each kind of space.

    Args:
        first: parameters by name.
        second: parameters by name.
        blueprint: of both.

    Returns:
        By role (``attention.qk``) and layer (None for spaces of no layer). Every number counts once, so that the
        squares sum to the squared `parameter_distance`: a parameter between two spaces, such as a query weight
        between the residual stream and Q-K, belongs to the one that has a layer, and one that no space touches to
        the role ``other``.
    """
    first, second = blueprint.stacked(first), blueprint.stacked(second)
    squares: dict[tuple[str, int | None], float] = {}
    for name, axes in blueprint.parameters.items():
        if not first[name].is_floating_point():
            continue
        difference = first[name].double() - second[name].double()
        if not axes:  # a scalar
            squares[OTHER, None] = squares.get((OTHER, None), 0.0) + float(difference.square())
            continue
        dim = _home(axes, blueprint)
        for leaf in leaves(axes[dim], difference, dim):
            space = None if leaf.space is None else blueprint.spaces[leaf.space]
            key = (OTHER, None) if space is None else (space.role, space.layer)
            squares[key] = squares.get(key, 0.0) + float(leaf.view.square().sum())
    return {key: math.sqrt(value) for key, value in squares.items()}


def _home(axes: tuple[Axis, ...], blueprint: Blueprint) -> int:
    """The dimension by which a parameter is counted: one in a layer's space if there is one, then any space's."""
    in_layer, in_space = [], []
    for dim, axis in enumerate(axes):
        spaces = [blueprint.spaces[name] for name in spaces_of(axis)]
        in_space += [dim] if spaces else []
        in_layer += [dim] if any(space.layer is not None for space in spaces) else []
    return (in_layer + in_space + [0])[0]


def _squared(first: Tensor, second: Tensor) -> float:
    return float((first.double() - second.double()).square().sum())
