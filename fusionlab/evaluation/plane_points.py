"""Points in the plane through three models in weight space (Garipov et al., "Loss Surfaces", 2018, figure 1)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import nn

from fusionlab.errors import InputError
from fusionlab.evaluation.distance import parameter_distance
from fusionlab.evaluation.plane import Corners
from fusionlab.evaluation.points import PointsModule
from fusionlab.evaluation.scores import Scores
from fusionlab.types import State

# Along each side; each point is a pass over the data.
MOST_POINTS = 100
# How far a plane is drawn beyond its models, as a share of the extent of their triangle.
MARGIN = 0.25
# A triangle lower than this share of its base is a line.
FLAT = 1e-3


def refuse_plane(points: int) -> None:
    """Refuse a number of points along a side that makes no plane, or that nobody waits for.

    Raises:
        InputError: another number than 0 or one from 2 on.
    """
    if points and not 2 <= points <= MOST_POINTS:
        raise InputError(f"plane is {points}; expected 0 for none, or 2 to {MOST_POINTS} points along each side")


def corners_of(states: Sequence[State]) -> Corners | None:
    """The places of three models in their plane.

    The first is the origin, the second lies on the first axis, the third above it; their distances are those of all
    floating point parameters.

    Args:
        states: three, of equal names and shapes.

    Returns:
        Three points, or None where the models lie on a line.
    """
    first, second, third = states
    base, side, other = (parameter_distance(*pair) for pair in ((first, second), (first, third), (second, third)))
    if base == 0:
        return None
    x = (base**2 + side**2 - other**2) / (2 * base)
    height = math.sqrt(max(side**2 - x**2, 0.0))
    return None if height < FLAT * base else ((0.0, 0.0), (base, 0.0), (x, height))


def shares_at(corners: Corners, x: float, y: float) -> tuple[float, float, float]:
    """The weights of three models whose weighted sum is a point of their plane; they sum to 1.

    Args:
        corners: see `corners_of`.
        x: first coordinate.
        y: second coordinate.
    """
    _, (base, _), (across, height) = corners
    third = y / height
    second = (x - third * across) / base
    return 1 - second - third, second, third


def grid_of(corners: Corners, points: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The coordinates of a grid that holds the triangle and a margin around it.

    Args:
        corners: of the triangle.
        points: along each side.
    """
    sides = []
    for values in zip(*corners, strict=True):
        low, high = min(values), max(values)
        margin = MARGIN * (high - low)
        step = (high - low + 2 * margin) / (points - 1)
        sides.append(tuple(low - margin + index * step for index in range(points)))
    return sides[0], sides[1]


class PlaneModule(PointsModule):
    """Tests weighted sums of three models; see `PointsModule`.

    Args:
        models: three, of one class; not modified.
        shares: the weights of each point, which sum to 1; negative ones lie outside of the triangle.
        scores: makes what measures one point.
        settle: changes the model at a point in place before it is measured (`fusionlab.merging.settling.settling`, for
            a position that is no end); nothing is changed if None.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        shares: Sequence[tuple[float, float, float]],
        scores: Callable[[], Scores],
        settle: Callable[[nn.Module, float], None] | None = None,
    ) -> None:
        super().__init__(models, len(shares), scores)
        self.shares = tuple(shares)
        self._settle = settle

    @torch.no_grad()
    def place(self, model: nn.Module, index: int) -> None:
        """Set the model to one weighted sum; integer buffers are the first model's."""
        shares = self.shares[index]
        states = [given.state_dict() for given in self.given]
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                parts = [state[name].to(tensor.dtype) for state in states]
                tensor.copy_(sum(share * part for share, part in zip(shares, parts, strict=True)))
            else:
                tensor.copy_(states[0][name])
        if self._settle is not None and max(shares) < 1:
            self._settle(model, 0.5)


def points_of(corners: Corners, points: int) -> list[tuple[float, float, float]]:
    """The weights of all points to measure: the grid row by row, the three models, and their mean.

    Args:
        corners: of the triangle.
        points: along each side.
    """
    across, upwards = grid_of(corners, points)
    grid = [shares_at(corners, x, y) for y, x in itertools.product(upwards, across)]
    return [*grid, (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (1 / 3, 1 / 3, 1 / 3)]
