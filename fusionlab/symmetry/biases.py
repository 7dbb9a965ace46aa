"""Additions that nothing needs: the key's bias and the mean over experts, which softmax ignores, the value's bias,
which the output's can carry, and the mean over features of what a LayerNorm reads.

Like folding, this is no group element (it cannot be undone from the result) but a change of gauge.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from fusionlab.symmetry.axes import Across, Axis, sides_of
from fusionlab.symmetry.blueprint import Blueprint, Space
from fusionlab.symmetry.leaves import Leaf, leaves
from fusionlab.symmetry.roles import Role


def clear_biases(state: Mapping[str, Tensor], blueprint: Blueprint) -> dict[str, Tensor]:
    """Set key biases and unseen means to zero and move value biases into the output's, where it changes no function.

    A constant added to every key adds the same number to all scores of one query, which softmax ignores. A constant
    added to every value is added to every mean of values, since attention weights sum to one; so ``W_O b_V`` may be
    added to the output's bias instead. Spaces on which every invertible matrix may act are those where the scores are
    products of queries and keys, and the output a linear map of the values; rotary positions and norms of queries and
    keys have other groups. `Blueprint.seen_key_biases` names those where something else reads the keys. Of every
    parameter in `Blueprint.unseen_means` the mean along its dimension is subtracted, which permutations commute with.

    Args:
        state: parameters by name; not modified.
        blueprint: of the model.

    Returns:
        A new state of the same function. A value bias whose output has no bias, or heads as a dimension, stays.
    """
    out = {name: tensor.detach() for name, tensor in state.items()}
    for space in blueprint.spaces.values():
        if not space.group.is_general_linear:
            continue
        if space.role == Role.QUERY_KEY and space.name not in blueprint.seen_key_biases:
            for name in biases_along(blueprint, space):
                _clear(out, blueprint, space, name, dual=True)
        _move_value_bias(out, blueprint, space)
    for name, dim in blueprint.unseen_means:
        tensor = out[name].double()
        out[name] = (tensor - tensor.mean(dim, keepdim=True)).to(out[name].dtype)
    return out


def biases_along(blueprint: Blueprint, space: Space) -> list[str]:
    """The names of the biases that a space acts on."""
    return [name for name, axes in blueprint.touching([space.name]).items() if len(axes) == 1]


def _clear(out: dict[str, Tensor], blueprint: Blueprint, space: Space, name: str, dual: bool) -> None:
    """Set the stretches of one bias that run along one side of a space to zero."""
    cleared = out[name].clone()
    for leaf in leaves(blueprint.parameters[name][0], cleared, 0):
        if leaf.space == space.name and leaf.is_dual == dual:
            leaf.view.zero_()
    out[name] = cleared


def _move_value_bias(out: dict[str, Tensor], blueprint: Blueprint, space: Space) -> None:
    """Move one space's value biases through the output's weight into the output's bias."""
    readers = readers_of_values(blueprint, space)
    if any(blueprint.biases[weight] not in out for weight, _ in readers):
        return
    for name in biases_along(blueprint, space) if readers else ():
        for weight, dim in readers:
            constant = constant_read(out[name], name, blueprint, space, (weight, dim), out[weight].shape[dim])
            added = out[weight].double().movedim(dim, -1) @ constant.to(out[weight].device)
            bias = blueprint.biases[weight]
            out[bias] = (out[bias].double() + added).to(out[bias].dtype)
        _clear(out, blueprint, space, name, dual=False)


def readers_of_values(blueprint: Blueprint, space: Space) -> list[tuple[str, int]]:
    """The weights that read a space's values and whose biases take these up, with the dimension of each that reads.

    Args:
        blueprint: of the model.
        space: of it; of one that has no values, or whose value biases stay, there are none.
    """
    inside = space.group.is_general_linear and space.role == Role.VALUE_OUTPUT
    if not inside or space.name in blueprint.seen_key_biases:
        return []
    readers = [
        (name, dim)
        for name, axes in blueprint.touching([space.name]).items()
        for dim, axis in enumerate(axes)
        if len(axes) > 1 and (space.name, True) in sides_of(axis)
    ]
    across = any(isinstance(blueprint.parameters[name][dim], Across) for name, dim in readers)
    return [] if across or any(name not in blueprint.biases for name, _ in readers) else readers


def constant_read(
    bias: Tensor, name: str, blueprint: Blueprint, space: Space, reader: tuple[str, int], size: int
) -> Tensor:
    """The constant that a value bias adds to all that an output's weight reads, ``(size,)``, float64.

    Args:
        bias: the value bias.
        name: of it.
        blueprint: of the model.
        space: of the values.
        reader: the weight, and its dimension that reads; see `readers_of_values`.
        size: of that dimension.
    """
    values = [
        leaf
        for leaf in leaves(blueprint.parameters[name][0], bias.double(), 0)
        if leaf.space == space.name and not leaf.is_dual
    ]
    weight, dim = reader
    return _as_read(values, blueprint.parameters[weight][dim], space, size)


def _as_read(values: list[Leaf], axis: Axis, space: Space, size: int) -> Tensor:
    """A constant that every value has, laid out as an output's weight reads it: once for each head that it serves."""
    constant = torch.zeros(size, dtype=torch.float64)
    for read in leaves(axis, constant, 0):
        if read.space == space.name and read.is_dual:
            # What several kinds of heads share a basis for is read by each kind's own stretch.
            for value in (value for value in values if set(value.path) <= set(read.path)):
                view = value.view.cpu()
                for position, outer in enumerate(read.path):
                    if outer not in value.path:
                        view = view.unsqueeze(position)
                read.view.add_(view)
    return constant
