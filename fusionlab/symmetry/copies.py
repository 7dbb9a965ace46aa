"""Experts that are copies of each other: what a mixture looks like that was upcycled from a dense model."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fusionlab.symmetry.axes import Across, unfolded
from fusionlab.symmetry.blueprint import Blueprint
from fusionlab.symmetry.roles import Role


def expert_spreads(state: Mapping[str, Tensor], blueprint: Blueprint) -> dict[str, float]:
    """The distance of the experts of every layer to their mean, as a share of their length.

    It is 0 for a mixture as it is upcycled from a dense model, whose experts start as copies of one feed-forward layer
    (Komatsuzaki et al., "Sparse upcycling", 2023), and about ``sqrt(1 - 1 / n)`` for n independent experts. Units are
    compared by place, where copies keep theirs.

    Args:
        state: parameters by name.
        blueprint: of the model.

    Returns:
        By space of experts, from 0 to 1; nothing for experts that are all zero.
    """
    state, squares = blueprint.stacked(state), dict[str, Tensor]()
    for name, axes in blueprint.parameters.items():
        # Each tensor once, though it may have several axes whose copies lie along its experts.
        for dim, axis in list(enumerate(axes))[::-1]:
            if isinstance(axis, Across) and blueprint.spaces[axis.spaces[-1]].role == Role.EXPERTS:
                experts = unfolded(axis, state[name].detach(), dim)[0].flatten(0, len(axis.blocks) - 1).double()
                apart = (experts - experts.mean(0)).square().sum()
                space = axis.spaces[-1]
                squares[space] = squares.get(space, torch.zeros(2)) + torch.stack((apart, experts.square().sum())).cpu()
                break
    return {space: float((apart / whole).sqrt()) for space, (apart, whole) in squares.items() if whole > 0}
