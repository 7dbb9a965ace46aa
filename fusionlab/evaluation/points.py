"""Points in weight space under a Trainer: one model, moved from point to point and tested at each."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lightning import LightningModule
from torch import Tensor, nn

from fusionlab.evaluation.scores import Scores


class PointsModule(LightningModule, ABC):
    """Tests one model at several points; the dataloader with index k belongs to the k-th point.

    Run it as ``trainer.test(module, [loader] * count)``: devices, precision and the progress bar are the Trainer's.
    Afterwards ``scores`` has one dict for each point.

    Args:
        given: the models that points lie between, of one class; not modified.
        count: of points.
        scores: makes what measures one point.
    """

    def __init__(self, given: Sequence[nn.Module], count: int, scores: Callable[[], Scores]) -> None:
        super().__init__()
        self.given: Any = nn.ModuleList(given)
        self.model = copy.deepcopy(given[0]).eval()
        self.points = nn.ModuleList(scores() for _ in range(count))
        self.scores: list[dict[str, float]] = []
        self._at: int | None = None

    @abstractmethod
    def place(self, model: nn.Module, index: int) -> None:
        """Set the model to a point, in place.

        Args:
            model: one of the class of those that were given.
            index: of the point.
        """

    @property
    def main(self) -> str:
        """Name of the metric to look at first."""
        first: Any = self.points[0]
        return first.main

    def on_test_start(self) -> None:
        self.given.eval()
        self._at = None
        points: Any = self.points
        for point in points:
            point.reset()

    def test_step(self, batch: Mapping[str, Tensor], batch_index: int, dataloader_idx: int = 0) -> None:
        if self._at != dataloader_idx:
            self.place(self.model, dataloader_idx)
            self._at = dataloader_idx
        point: Any = self.points[dataloader_idx]
        point.update(self.model, batch)

    def on_test_epoch_end(self) -> None:
        points: Any = self.points
        self.scores = [point.compute() for point in points]
