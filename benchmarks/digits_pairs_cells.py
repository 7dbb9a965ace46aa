"""What is measured of two digit models of one size and other seeds: cells of one pair."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from cells import Cells
from digits_models import kept_model
from digits_ways import cell_name
from settings import Batch, batches
from torch import nn
from ways import MEAN, Given, Way, make, what

import fusionlab
from fusionlab.data import Digits
from fusionlab.evaluation.ensemble import Ensemble
from fusionlab.evaluation.task_scores import make_scores
from fusionlab.probes import probes

# Images that tuning models are not trained on, of the 1,400.
HELD_OUT = 400
# Positions on the line between two twins.
POINTS = 21
STEPS, SYNTHETIC = 300, 4000


@dataclass(frozen=True)
class Split:
    """Whose models, and on what.

    Attributes:
        name: ``tuning`` or ``test``.
        val_size: images that the models are not trained on; the demo's number if None.
        seen: training images without labels.
        scored: images with labels that nothing else sees.
    """

    name: str
    val_size: int | None
    seen: list[Batch]
    scored: list[Batch]

    @classmethod
    def tuning(cls) -> Split:
        """1,000 images to train on and to match with, and 400 of the other training images to choose by."""
        data = Digits(val_size=HELD_OUT)
        scored = [batch for batch in data.val_dataloader() if isinstance(batch, dict)]
        return cls("tuning", HELD_OUT, batches(data.train_dataloader()), scored)

    @classmethod
    def test(cls) -> Split:
        """1,400 images to match with, of which models are trained on 1,300, and the 397 test images."""
        data = Digits(val_size=0)
        return cls("test", None, batches(data.train_dataloader()), batches(data.test_dataloader(), labels=True))


class Pair:
    """Two models of one width, and the cells about them.

    Args:
        split: of which models, and what they are scored on.
        seeds: of both.
        width: of both.
        cells: where what is measured is kept.
        folder: of the end models.
    """

    def __init__(self, split: Split, seeds: Sequence[int], width: int, cells: Cells, folder: Path) -> None:
        self.split, self.seeds, self.width, self.cells, self.folder = split, seeds, width, cells, folder

    @cached_property
    def ends(self) -> list[nn.Module]:
        """Both models, trained where they are not in the folder."""
        how: dict[str, Any] = {"width": self.width, "val_size": self.split.val_size}
        return [kept_model(self.folder, seed, **how) for seed in self.seeds]

    def name(self, what: str) -> str:
        """The name of a cell."""
        return cell_name(self.split.name, self.seeds[0], self.width, what)

    def end_models(self) -> None:
        """What both and their ensemble reach."""
        name = self.name("ends")
        if name not in self.cells.found:
            scores = [self.scores(end)["accuracy"] for end in self.ends]
            self.cells.keep(name, {"ends": scores, "ensemble": self.scores(Ensemble(self.ends))["accuracy"]})

    def measure(
        self, way: Way, given: Given, seed: int | None = None, images: int | None = None, steps: int | None = None
    ) -> None:
        """Measure a cell that is missing.

        Args:
            way: to one model.
            given: its settings.
            seed: of learning, for ways that learn.
            images: how many; all if None.
            steps: of a distillation; as many as learned matching takes if None.
        """
        name = self.name(what(way, given, seed, images=images, steps=steps))
        if name not in self.cells.found:
            self.cells.keep(name, self._made(way, given, seed or 0, images, steps or STEPS))
            print(name, f"{self.cells.found[name]['accuracy']:.3f}", file=sys.stderr, flush=True)

    def _made(self, way: Way, given: Given, seed: int, count: int | None, steps: int) -> dict[str, Any]:
        inputs = self._inputs(way, seed, count)
        made = make(way, given, self.ends, inputs, {"steps": steps}, seed)
        found = self.scores(made.model) | {"seconds": made.seconds}
        if way.then == MEAN:
            line = fusionlab.barrier(made.twins[0], made.twins[1], self.split.scored, POINTS)
            found |= {"barrier": line.barrier}
        return found

    def _inputs(self, way: Way, seed: int, count: int | None) -> Any:
        if way.seen == "none":
            return None
        if way.seen == "synthetic":
            return probes(self.ends, SYNTHETIC, seed=seed)
        return self.images(count)

    def images(self, count: int | None = None) -> list[Batch]:
        """So many of the split's images without labels; all if None."""
        images = torch.cat([batch["pixel_values"] for batch in self.split.seen])[:count]
        return [{"pixel_values": part} for part in images.split(128)]

    def scores(self, model: nn.Module) -> dict[str, float]:
        """The accuracy and the loss on what the split is scored on."""
        scores = make_scores(model.eval())
        for batch in self.split.scored:
            scores.update(model, batch)
        return {name: float(value) for name, value in scores.compute().items() if name in ("accuracy", "loss")}
