"""Permutations: assignments, and doubly stochastic matrices as their means."""

import math

import torch
from torch import Tensor

from fusionlab.matching.assignment import assignment
from fusionlab.matching.groups.geometry import Geometry, geometry_of
from fusionlab.symmetry.groups import Permutation

# Passes of Sinkhorn's scaling.
BALANCING = 20
# Of a correlation, looked at together.
ROWS = 256


@geometry_of(Permutation)
class PermutationGeometry(Geometry[Permutation]):
    """The geometry of the symmetric group."""

    @property
    def is_assigned(self) -> bool:
        return True

    def closest(self, correlation: Tensor) -> tuple[Tensor, Tensor]:
        order = improving_assignment(correlation).to(correlation.device)
        return order, correlation.double().gather(-1, order.unsqueeze(-1)).sum((-2, -1))

    def mean(self, correlation: Tensor) -> tuple[Tensor, Tensor]:
        return doubly_stochastic(correlation)

    def prior(self) -> Tensor:
        return torch.full((self.group.size, self.group.size), 1 / self.group.size, dtype=torch.float64)


def improving_assignment(correlation: Tensor) -> Tensor:
    """The best assignment, or the identity where rounding in the solver left it no better than that.

    Args:
        correlation: shape ``(..., n, n)``, anchor unit by source unit.

    Returns:
        Permutations of shape ``(..., n)``, on the CPU; see `assignment`.
    """
    if correlation.ndim > 2:
        return torch.stack([improving_assignment(part) for part in correlation])
    order = assignment(correlation)
    size = order.numel()
    reached = correlation[torch.arange(size), order.to(correlation.device)].double().sum()
    # A few rows at a time: of a wide layer a copy in float64 is larger than the layer.
    lengths = torch.stack([rows.double().abs().sum() for rows in correlation.split(ROWS)]).sum() / size
    is_better = reached > correlation.diagonal().double().sum() + 1e-12 * lengths
    return order if is_better else torch.arange(size)


def doubly_stochastic(value: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of ``exp(value)`` scaled to sum to one (Sinkhorn, 1964); the last pass scales the columns.

    Args:
        value: shape ``(..., n, n)``.

    Returns:
        The matrices M, shape ``(..., n, n)``; and ``<M, value>`` with the entropy of M, less that of equal entries, of
        shape ``(...)``: zero where the values are, and its slope in the values is M.
    """
    if value.ndim > 2:
        means, gains = zip(*map(doubly_stochastic, value), strict=True)
        return torch.stack(means), torch.stack(gains)
    rows = value.logsumexp(-1, keepdim=True)
    # In place, since new memory takes as long as the arithmetic.
    scaled = value - rows
    columns = scaled.logsumexp(-2, keepdim=True)
    scaled.sub_(columns).exp_()
    tiny = torch.finfo(scaled.dtype).tiny
    left, right = torch.ones_like(scaled[:, 0]), torch.ones_like(scaled[0])
    for _ in range(BALANCING):
        left = 1 / (scaled @ right).clamp_min(tiny)
        right = 1 / (left @ scaled).clamp_min(tiny)
    size = len(value)
    gain = rows.sum() + columns.sum() - left.log().sum() - right.log().sum() - size * math.log(size)
    return scaled.mul_(left[:, None]).mul_(right), gain
