"""The straight line between two models: loss and metrics at points from one to the other."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.evaluation.scores import Scores

# On one line; each is a pass over the data.
MOST_POINTS = 10_000


def refuse_points(points: int, may_be_none: bool) -> None:
    """Refuse a number of points that makes no line, or that nobody waits for.

    Args:
        points: on the line between two models, both ends included.
        may_be_none: whether 0 says that no line is wanted.

    Raises:
        InputError: another number.
    """
    least = "0 for no lines, or at least 2" if may_be_none else "at least 2"
    if points < 2 and not (may_be_none and points == 0):
        raise InputError(f"points is {points}; expected {least}")
    if points > MOST_POINTS:
        raise InputError(f"points is {points}; expected at most {MOST_POINTS:,}")


class LineModule(LightningModule):
    """Tests the models on the line between two; the dataloader with index k belongs to the k-th position.

    Run it as ``trainer.test(module, [loader] * len(positions))``: devices, precision and the progress bar are the
    Trainer's. Afterwards ``scores`` has one dict for each position.

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
        super().__init__()
        self.anchor, self.source = anchor, source
        self.positions = tuple(positions)
        self._settle = settle
        self.model = copy.deepcopy(anchor).eval()
        self.points = nn.ModuleList(scores() for _ in positions)
        self.scores: list[dict[str, float]] = []
        self._at: int | None = None

    @property
    def main(self) -> str:
        """Name of the metric to look at first."""
        first: Any = self.points[0]
        return first.main

    def on_test_start(self) -> None:
        self.anchor.eval()
        self.source.eval()
        self._at = None
        points: Any = self.points
        for point in points:
            point.reset()

    def test_step(self, batch: Mapping[str, Tensor], batch_index: int, dataloader_idx: int = 0) -> None:
        if self._at != dataloader_idx:
            position = self.positions[dataloader_idx]
            move_along_line(self.model, self.anchor, self.source, position)
            if self._settle is not None:
                self._settle(self.model, position)
            self._at = dataloader_idx
        point: Any = self.points[dataloader_idx]
        point.update(self.model, batch)

    def on_test_epoch_end(self) -> None:
        points: Any = self.points
        self.scores = [point.compute() for point in points]


@torch.no_grad()
def move_along_line(model: nn.Module, anchor: nn.Module, source: nn.Module, position: float) -> None:
    """Set `model`'s parameters to ``(1 - position) * anchor + position * source``; integer buffers are the anchor's."""
    start, end = anchor.state_dict(), source.state_dict()
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            tensor.copy_(torch.lerp(start[name], end[name].to(start[name].dtype), position))
        else:
            tensor.copy_(start[name])
