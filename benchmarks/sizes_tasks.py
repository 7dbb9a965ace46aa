"""A small model that knows digits 0 to 4 and a large one that knows 5 to 9: what one model of the large size knows."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from cells import Cells
from intervals import half_width
from settings import batches
from sizes_measures import OPTIMIZER, SMALL, Images, Size, cell_name
from sizes_models import end_model
from torch import nn

from fusionlab.api.growing import of_one_size
from fusionlab.data import Digits
from fusionlab.fusion import Fuser, FusionPlan
from fusionlab.inputs import Inputs
from fusionlab.matching.recipe import recipe
from fusionlab.polish import PolishOptions
from fusionlab.stages import run

HALVES = ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9))
LEARNED, DISTILLED = "`learned`, `unseen` false", "both distilled into the large one"
# Options of the presets.
OPTIONS: dict[str, dict[str, Any]] = {"weights": {}, "learned": {"unseen": False, "steps": 300, **OPTIMIZER}}
# By the name of a row, the preset of its matching and how much of each end its start is.
STARTS: dict[str, tuple[str | None, tuple[float, float]]] = {
    "plain mean after growth": (None, (0.5, 0.5)),
    "`weights`": ("weights", (0.5, 0.5)),
    LEARNED: ("learned", (0.5, 0.5)),
    DISTILLED: (None, (0.0, 1.0)),
}
AIM = 92


class TaskPair:
    """Two models of different sizes and seeds, each of which knows half of the digits, and the cells about them.

    Args:
        seeds: of the small model and of the large one.
        size: of the large model.
        images: to test on.
        cells: where what is measured is kept.
        folder: of the end models.
    """

    def __init__(self, seeds: tuple[int, int], size: Size, images: Images, cells: Cells, folder: Path) -> None:
        self.seeds, self.size, self.images, self.cells, self.folder = seeds, size, images, cells, folder

    def measure(self) -> None:
        """All cells that are missing: the ends among ten digits, every start, and each of them polished."""
        name = task_cell(self.seeds[0], self.size, "ends")
        if name not in self.cells.found:
            self.cells.keep(name, {"accuracy": [self.images.accuracy(end) for end in self.ends]})
        for what, (preset, weights) in STARTS.items():
            for polished in (False, True):
                name = task_cell(self.seeds[0], self.size, what, polished)
                if name not in self.cells.found and (polished or sum(map(bool, weights)) > 1):
                    self.cells.keep(name, self._fused(preset, weights, polished))

    @property
    def ends(self) -> list[nn.Module]:
        """The small model and the large one, trained where they are not in the folder."""
        return [end_model(self.folder, *one) for one in zip(self.seeds, (SMALL, self.size), HALVES, strict=True)]

    def _fused(self, preset: str | None, weights: tuple[float, float], polished: bool) -> dict[str, Any]:
        start = time.process_time()
        own = [batches(Digits(val_size=0, classes=list(half)).train_dataloader()) for half in HALVES]
        inputs = Inputs.from_batches(own, len(HALVES))
        ends = of_one_size(self.ends, inputs, fill=preset is not None)
        plan = FusionPlan(
            {} if preset is None else {preset: recipe(preset, **OPTIONS[preset])},
            weights=weights,
            anchor=1,
            polish=PolishOptions(steps=300) if polished else None,
            heads="union",
        )
        kept = run(Fuser({"small": ends[0], "large": ends[1]}, plan, inputs).fuse()).kept
        assert kept is not None
        return {"accuracy": self.images.accuracy(kept.model), "seconds": time.process_time() - start}


def task_cell(seed: int, size: Size, what: str, polished: bool = False) -> str:
    """A cell's name in the file."""
    return cell_name("tasks", seed, size, f"{what}, polished" if polished else what)


def tasks_text(found: dict[str, Any], sizes: Sequence[Size], pairs: Sequence[int]) -> str:
    """The section of the page, with the rows that are there."""
    rows = [line for size in sizes for line in _rows(found, size, pairs)]
    if not rows:
        return ""
    return f"""## Digits 0 to 4 in the small one, 5 to 9 in the large one

The same sizes, other end models: each was trained on the images of five digits alone, and is right on about half of the
test images, since both have ten labels. The images of each half, without labels, are there to match and to polish with
(300 steps, each half towards its own end model). All other options have their
defaults; one seed of learning.

| accuracy in %, all ten digits | mean | worst | {" | ".join(f"pair {pair}" for pair in pairs)} |
|---|---:|---:|{"---:|" * len(pairs)}
{chr(10).join(rows)}

{_verdict(found, sizes, pairs)}
"""


def _rows(found: dict[str, Any], size: Size, pairs: Sequence[int]) -> Iterator[str]:
    what = f"{size[1]} layers, {size[0]} wide"
    ends = {pair: found.get(task_cell(pair, size, "ends")) for pair in pairs}
    for place, end in enumerate(("small", "large")):
        of_end = {pair: cell["accuracy"][place] for pair, cell in ends.items() if cell}
        yield from _row(f"{what}: {end} end model", of_end, pairs)
    for name, polished in itertools.product(STARTS, (False, True)):
        cells = {pair: found.get(task_cell(pair, size, name, polished)) for pair in pairs}
        told = f"{what}: {name}{', polished' if polished and 'distilled' not in name else ''}"
        yield from _row(told, {pair: cell["accuracy"] for pair, cell in cells.items() if cell}, pairs)


def _row(name: str, values: dict[int, float], pairs: Sequence[int]) -> Iterator[str]:
    if not values:
        return
    reached = [100 * value for value in values.values()]
    half = f" ± {half_width(reached):.1f}" if len(reached) > 2 else ""
    cells = " | ".join(f"{100 * values[pair]:.1f}" if pair in values else "" for pair in pairs)
    yield f"| {name} | {fmean(reached):.1f}{half} | {min(reached):.1f} | {cells} |"


def _verdict(found: dict[str, Any], sizes: Sequence[Size], pairs: Sequence[int]) -> str:
    lines = []
    for name, polished in ((LEARNED, False), (LEARNED, True), (DISTILLED, True)):
        cells = [found.get(task_cell(pair, size, name, polished)) for size in sizes for pair in pairs]
        reached = [100 * cell["accuracy"] for cell in cells if cell]
        if reached:
            is_reached = "reached" if fmean(reached) >= AIM else "missed"
            told = f"{name}, polished," if polished and "distilled" not in name else name
            is_whole = len(reached) == len(sizes) * len(pairs)
            count = f"{len(reached)} pair{'s' * (len(reached) > 1)}"
            lines.append(f"{told} {fmean(reached):.1f} over {count} ({is_reached if is_whole else 'so far'})")
    return f"The aim is {AIM} on average: {'; '.join(lines)}."
