"""Of two tensors, how many units of one are nearest to themselves in the other: what tells a shared basis from none.

A unit is one row (or column, or slice) of a tensor: a hidden feature, a head's coordinate, a channel. Two models that
were trained apart number their units independently of one another, as training from exchangeable initial weights treats
all orders alike. Then the model behind any one of a tensor's axes may be renumbered at random without changing how
probable it is, and whichever unit of the second model is nearest to unit i, it is i's own number with probability one
in m. The count of such units has mean 1 and is at most as spread as a Poisson variable of mean 1, whatever m is, how
large the weights are and what all units have in common.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

# Units and features of a tensor that are looked at; a sample of units is renumbered at random as all of them are.
UNITS, FEATURES = 256, 4096
# Of fewer features a unit is near many others even in a fine-tune of its model: such axes tell nothing.
FEWEST = 8
# How improbable it is for models that share nothing to be taken for others, at most.
LEVEL = 1e-3
Relation = Literal["own", "related", "unrelated"]
# From the least that two models may share to the most.
RELATIONS: tuple[Relation, ...] = ("unrelated", "related", "own")


def tail(least: int) -> float:
    """The probability that a Poisson variable of mean 1 is at least some number.

    Args:
        least: at least 0.
    """
    return 1 - math.fsum(math.exp(-1) / math.factorial(count) for count in range(least))


# Fewest units nearest to themselves that tell anything. The most of a kind's tensors must have as many, and the most of
# a model's kinds; each majority at most doubles the probability (Markov), however tensors depend on one another.
LEAST = next(count for count in range(100) if 4 * tail(count) <= LEVEL)


@dataclass(frozen=True)
class Nearness:
    """Of one axis of two tensors, the units that are nearest to themselves.

    Attributes:
        own: their count; where several are equally near, each has its share.
        units: how many were looked at: not those that are zero or equal to the mean of all.
    """

    own: float
    units: int

    @property
    def share(self) -> float:
        """The share of units that are nearest to themselves; for unrelated models about one over their count."""
        return self.own / self.units if self.units else 0.0

    @property
    def relation(self) -> Relation | None:
        """The conclusion: ``own`` where most units are nearest to themselves; None where there are too few units."""
        if self.units < LEAST:
            return None
        if self.own < LEAST:
            return "unrelated"
        return "own" if 2 * self.own >= self.units else "related"


def nearness(first: Tensor, second: Tensor) -> Nearness:
    """The count of rows of one matrix that are nearest, by angle, to the same row of another.

    Args:
        first: shape (units, features).
        second: the same shape.
    """
    wide = torch.promote_types(torch.promote_types(first.dtype, second.dtype), torch.float32)
    a, b = (_centred(matrix.to(wide)) for matrix in (first, second))
    sizes = a.norm(dim=1), b.norm(dim=1)
    # Rounding of numbers as large as the largest unit.
    usable = torch.stack([size > 1e-6 * size.max() for size in sizes]).all(0)
    if int(usable.sum()) < 2:
        return Nearness(0.0, 0)
    a, b = (matrix[usable] / size[usable, None] for matrix, size in zip((a, b), sizes, strict=True))
    cosines = a @ b.T
    is_nearest = cosines >= cosines.max(1, keepdim=True).values - 1e-6
    credit = is_nearest.diagonal() / is_nearest.sum(1)
    return Nearness(float(credit.sum()), len(a))


def worst_axis(first: Tensor, second: Tensor) -> Nearness | None:
    """The axis of two tensors by which they share least; None where no axis has units enough.

    Some axes number what all models number alike (tokens, positions, labels): there rows of unrelated models may be
    alike. Every parameter has an axis that its model numbers by itself, so the one that shares least tells.

    Args:
        first: at least 2 dimensions, a block of a parameter.
        second: the same shape.
    """
    found = []
    for axis, size in enumerate(first.shape):
        if size < LEAST or first.numel() < FEWEST * size:
            continue
        places = spread(size, UNITS)
        one, other = (_features(t.index_select(axis, places).movedim(axis, 0).flatten(1)) for t in (first, second))
        if (measured := nearness(one, other)).relation is not None:
            found.append(measured)
    return min(found, key=lambda one: (RELATIONS.index(one.relation or "unrelated"), one.share), default=None)


def spread(size: int, most: int) -> Tensor:
    """Places spread evenly over an axis.

    Args:
        size: of the axis.
        most: places; all where there are fewer.
    """
    if size <= most:
        return torch.arange(size)
    return torch.arange(most) * size // most


def _features(matrix: Tensor) -> Tensor:
    """A matrix with at most `FEATURES` columns."""
    return matrix[:, spread(matrix.shape[1], FEATURES)]


def _centred(matrix: Tensor) -> Tensor:
    """Rows less what all have in common."""
    return matrix - matrix.mean(0, keepdim=True)
