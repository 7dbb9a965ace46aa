"""What is measured of a small and a large model, once the small one is grown: cells of one pair."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from cells import Cells
from digits_models import digits
from settings import Batch, batches
from sizes_models import end_model
from torch import Tensor, nn

import fusionlab
from fusionlab.evaluation.ensemble import Ensemble
from fusionlab.growing import grown
from fusionlab.growing.layers import Placement
from fusionlab.polish import PolishOptions, polish

Size = tuple[int, int]
SMALL: Size = (48, 4)
# Positions on the line between two twins, from the small one to the large one.
POINTS = 21
STEPS = 300
# What all cells of `learned` are measured with.
OPTIMIZER = {"optimizer": "adamw"}


def size_name(size: Size) -> str:
    """A width and a number of layers as 80x6."""
    return f"{size[0]}x{size[1]}"


@dataclass
class Images:
    """The images that everything here looks at.

    Attributes:
        train: 1,400 without labels, to match and to distil with.
        test: 397 with labels, that nothing else sees.
    """

    train: list[Batch]
    test: list[Batch]

    @classmethod
    def load(cls) -> Images:
        """Those of scikit-learn."""
        train, test = digits()
        return cls(batches(train), test)

    @torch.no_grad()
    def guesses(self, model: nn.Module) -> Tensor:
        """The classes that a model gives the test images."""
        outputs = [model.eval()(pixel_values=batch["pixel_values"]) for batch in self.test]
        return torch.cat([output.logits.argmax(1) for output in outputs])

    @cached_property
    def labels(self) -> Tensor:
        """Of the test images."""
        return torch.cat([batch["labels"] for batch in self.test])

    def accuracy(self, model: nn.Module) -> float:
        """The share of the test images that a model gives their label."""
        return float((self.guesses(model) == self.labels).double().mean())


class Pair:
    """A small and a large model of different seeds, and the cells about them.

    Args:
        split: ``tuning`` or ``test``.
        seeds: of the small model and of the large one.
        size: of the large model.
        images: to look at and to test on.
        cells: where what is measured is kept.
        folder: of the end models.
    """

    def __init__(
        self, split: str, seeds: tuple[int, int], size: Size, images: Images, cells: Cells, folder: Path
    ) -> None:
        self.split, self.seeds, self.size, self.images, self.cells = split, seeds, size, images, cells
        self.folder = folder

    @cached_property
    def ends(self) -> list[nn.Module]:
        """The small model and the large one."""
        return [end_model(self.folder, seed, size) for seed, size in zip(self.seeds, (SMALL, self.size), strict=True)]

    def name(self, what: str) -> str:
        """The name of a cell."""
        return cell_name(self.split, self.seeds[0], self.size, what)

    def cell(self, what: str, make: Callable[[], dict[str, Any]]) -> None:
        """Measure a cell that is missing, with the seconds that it took of a processor."""
        name = self.name(what)
        if name not in self.cells.found:
            self.cells.keep(name, make())
            print(name, self.cells.found[name].get("accuracy", ""), file=sys.stderr, flush=True)

    def end_models(self) -> None:
        """What both reach, and their ensemble; where they differ; what growing did."""

        def make() -> dict[str, Any]:
            growth = grown(self.ends[0], self.ends[1])
            guesses = [self.images.guesses(end) for end in self.ends]
            return {
                "small": self.images.accuracy(self.ends[0]),
                "large": self.images.accuracy(self.ends[1]),
                "grown": self.images.accuracy(growth.model),
                "exact": growth.exact,
                "parameters": list(growth.parameters),
                "ensemble": self.images.accuracy(Ensemble(self.ends)),
                "differ": int((guesses[0] != guesses[1]).sum()),
            }

        self.cell("ends", make)

    def matched(self, what: str, preset: str, **how: Any) -> None:
        """The mean of both once the small one is grown and both are matched, and the line between the twins."""
        self.cell(what, lambda: self._matched(self.ends, preset, **how)[1])

    def placed(self, what: str, places: Sequence[int], preset: str, fill: bool = True, **how: Any) -> None:
        """The same with the small model's layers in some places of the large one's, filled or with zeros."""
        stack = Placement("vit.layers", "vit.layers", tuple(places), self.size[1])

        def make() -> dict[str, Any]:
            with patch("fusionlab.growing.growth.placements", return_value=(stack,)):
                twin = grown(self.ends[0], self.ends[1], fill=fill).model
            return self._matched([twin, self.ends[1]], preset, **how)[1]

        self.cell(what, make)

    def learned(self, seed: int) -> None:
        """Learned matching; and its merge shrunk to the small model's size, before and after polish."""

        def make() -> dict[str, Any]:
            merge, found = self._matched(self.ends, "learned", data=self.images.train, steps=STEPS, seed=seed)
            shrunk = fusionlab.shrink(merge, self.ends[0])
            polished = polish(shrunk, [merge], self.images.train, PolishOptions(steps=STEPS, seed=seed))
            return found | {"shrunk": self.images.accuracy(shrunk), "polished": self.images.accuracy(polished)}

        self.cell(f"learned {seed}", make)

    def distilled(self, which: str, steps: int, seed: int) -> None:
        """Both ends distilled into one of them.

        Args:
            which: ``small`` or ``large``.
            steps: of AdamW.
            seed: of the order of the images.
        """

        def make() -> dict[str, Any]:
            start = time.process_time()
            student = self.ends[("small", "large").index(which)]
            found = polish(student, self.ends, self.images.train, PolishOptions(steps=steps, seed=seed))
            seconds = time.process_time() - start
            return {"accuracy": self.images.accuracy(found), "agrees": self._agrees(found), "seconds": seconds}

        self.cell(f"{which} {steps} {seed}", make)

    def _matched(self, ends: list[nn.Module], preset: str, **how: Any) -> tuple[nn.Module, dict[str, Any]]:
        start = time.process_time()
        if preset == "learned":
            how |= OPTIMIZER
        twins = fusionlab.align(ends, anchor=1, preset=preset, **how)
        merge = fusionlab.merge(twins)
        seconds = time.process_time() - start
        line = fusionlab.barrier(twins[0], twins[1], self.images.test, POINTS)
        return merge, {
            "accuracy": self.images.accuracy(merge),
            "agrees": self._agrees(merge),
            "barrier": line.barrier,
            "line": list(line.score),
            "losses": list(line.loss),
            "seconds": seconds,
        }

    def _agrees(self, model: nn.Module) -> list[int]:
        """Of the test images on which the ends differ, those that a model takes as each of them does."""
        guesses, found = [self.images.guesses(end) for end in self.ends], self.images.guesses(model)
        differ = guesses[0] != guesses[1]
        return [int((found == guess)[differ].sum()) for guess in guesses]


def cell_name(split: str, seed: int, size: Size, what: str) -> str:
    """A cell's name in the file."""
    return f"{split} {seed} {size_name(size)} {what}"
