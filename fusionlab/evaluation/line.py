"""The straight line between two models: loss and metrics at points from one to the other."""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from fusionlab.errors import InputError
from fusionlab.evaluation.points import PointsModule
from fusionlab.evaluation.scores import Scores

# On one line; each is a pass over the data.
MOST_POINTS = 10_000


def refuse_points(points: int, may_be_none: bool) -> None:
    """Refuse a number of points with none between the ends, where a barrier would be, or that nobody waits for.

    Args:
        points: on the line between two models, both ends included.
        may_be_none: whether 0 says that no line is wanted.

    Raises:
        InputError: another number.
    """
    least = "0 for no lines, or at least 3" if may_be_none else "at least 3"
    if points < 3 and not (may_be_none and points == 0):
        raise InputError(f"points is {points}; expected {least}")
    if points > MOST_POINTS:
        raise InputError(f"points is {points}; expected at most {MOST_POINTS:,}")


class LineModule(PointsModule):
    """Tests the models on the line between two; see `PointsModule`.

    Args:
        anchor: the model at position 0; not modified.
        source: the model at position 1, of the same class; not modified.
        positions: points on the line, from 0 to 1.
        scores: makes what measures one point; a classifier's if not given.
        settle: changes the model at a position in place before it is measured, so that its activations are its own
            (see `fusionlab.merging.settling.settling`); nothing is changed if None.
    """

    def __init__(
        self,
        anchor: nn.Module,
        source: nn.Module,
        positions: Sequence[float],
        scores: Callable[[], Scores] = Scores,
        settle: Callable[[nn.Module, float], None] | None = None,
    ) -> None:
        super().__init__([anchor, source], len(positions), scores)
        self.positions = tuple(positions)
        self._settle = settle

    def place(self, model: nn.Module, index: int) -> None:
        """Set the model to one position on the line."""
        anchor, source = self.given
        move_along_line(model, anchor, source, self.positions[index])
        if self._settle is not None:
            self._settle(model, self.positions[index])


@torch.no_grad()
def move_along_line(model: nn.Module, anchor: nn.Module, source: nn.Module, position: float) -> None:
    """Set `model`'s parameters to ``(1 - position) * anchor + position * source``; integer buffers are the anchor's."""
    start, end = anchor.state_dict(), source.state_dict()
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            tensor.copy_(torch.lerp(start[name], end[name].to(start[name].dtype), position))
        else:
            tensor.copy_(start[name])
