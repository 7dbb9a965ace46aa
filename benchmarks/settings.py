"""What the benchmark of models that never met is made of: settings, each with groups of end models, and lines."""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.utils.data import DataLoader

import fusionlab
from fusionlab.atomic import atomic_file
from fusionlab.evaluation.task_scores import make_scores
from fusionlab.matching.recipe import recipe
from fusionlab.polish import PolishOptions, polish

Batch = dict[str, Tensor]
Models = Sequence[nn.Module]
Metric = Literal["accuracy", "loss"]
POINTS = 11


@dataclass(frozen=True)
class Line:
    """One line of the table: what several groups of models reach, and the barriers between their members."""

    setting: str
    variant: str
    reached: tuple[float, ...]
    barriers: tuple[float, ...] = ()
    seconds: float = 0.0
    metric: Metric = "accuracy"

    def cells(self) -> list[str]:
        """The mean and the worst of what was measured: accuracies in percent, losses in nats."""
        several = len(self.reached) > 1
        least = (min if self.metric == "accuracy" else max)(self.reached)
        values = (fmean(self.reached), least)
        mean, worst = (f"{100 * x:.1f}" if self.metric == "accuracy" else f"{x:.3f}" for x in values)
        barrier = f"{fmean(self.barriers):.3f}" if self.barriers else ""
        highest = f"{max(self.barriers):.3f}" if self.barriers and several else ""
        each = f"{self.seconds / len(self.reached):.1f}" if self.seconds else ""
        return [self.setting, self.variant, mean, worst if several else "", barrier, highest, each]


HEADS = ("setting", "variant", "half way", "worst", "barrier", "highest", "seconds")


@dataclass(frozen=True)
class Setting:
    """Groups of end models of one kind.

    Attributes:
        name: of the rows.
        groups: each is merged into one model, with its last as the anchor.
        test: labelled batches that nothing else sees.
        metric: what is measured half way; a loss for language models.
    """

    name: str
    groups: Sequence[Models]
    test: list[Batch]
    metric: Metric = "accuracy"

    def measure(self, model: nn.Module) -> float:
        """The metric on the test batches."""
        scores = make_scores(model.eval())
        for batch in self.test:
            scores.update(model, batch)
        return scores.compute()[self.metric]

    def barrier(self, twins: Models) -> float:
        """The highest barrier on the lines from the last twin to the others."""
        return max(fusionlab.barrier(twins[-1], twin, self.test, POINTS).barrier for twin in twins[:-1])

    def line(self, variant: str, reached: Sequence[float], barriers: Sequence[float] = (), seconds: float = 0) -> Line:
        """A line of the table."""
        return Line(self.name, variant, tuple(reached), tuple(barriers), seconds, self.metric)

    def end_models(self) -> Line:
        """The level to reach: the mean of the end models of each group."""
        return self.line("end models", [fmean(map(self.measure, models)) for models in self.groups])

    def matched(self, variant: str, *, method: str = "simple", merge_data: Any = None, **how: Any) -> Line:
        """The plain mean of the twins of each group, and the barriers between them."""
        reached, barriers, seconds = [], [], 0.0
        for models in self.groups:
            start = time.perf_counter()
            twins = fusionlab.align(models, anchor=len(models) - 1, **how)
            merge = fusionlab.merge(twins, method, data=merge_data)
            seconds += time.perf_counter() - start
            reached.append(self.measure(merge))
            if method == "simple":
                barriers.append(self.barrier(twins))
        return self.line(variant, reached, barriers, seconds)

    def polished(self, variant: str, inputs: list[Batch], start: str, steps: int = 300) -> Line:
        """A short distillation from the plain mean, or from the mean of the twins."""
        reached, seconds = [], 0.0
        for models in self.groups:
            begin = time.perf_counter()
            options: dict[str, Any] = {"data": inputs} if recipe(start).needs_inputs else {}
            merge = fusionlab.merge(fusionlab.align(models, anchor=len(models) - 1, preset=start, **options))
            result = polish(merge, models, inputs, PolishOptions(steps=steps))
            seconds += time.perf_counter() - begin
            reached.append(self.measure(result))
        return self.line(variant, reached, (), seconds)


def batches(data: Any, count: int | None = None, labels: bool = False, is_mixed: bool = False) -> list[Batch]:
    """Batches of a loader's first samples in a fixed order, its own or a mixed one, with labels or without."""
    chosen: list[Batch] = []
    left = count
    samples = data.dataset.shuffle(seed=0) if is_mixed else data.dataset
    for batch in DataLoader(samples, batch_size=128, collate_fn=data.collate_fn):
        chosen.append({name: value[:left] for name, value in batch.items() if labels or name != "labels"})
        if left is not None:
            left -= len(next(iter(batch.values())))
            if left <= 0:
                break
    return chosen


def ready(data: Any) -> None:
    """Read what a data module trains and tests on.

    Args:
        data: the module.
    """
    data.prepare_data()
    for stage in ("fit", "test"):
        data.setup(stage)


def quiet(threads: int) -> None:
    """No warnings and no progress bars from here on, and so many threads for each matrix product."""
    torch.set_num_threads(threads)
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def keep(lines: Sequence[Line], path: Path) -> None:
    """Write the table for a page."""
    with atomic_file(path, overwrite=True) as temporary:
        temporary.write_text(markdown(lines), encoding="utf-8")


def show(lines: Sequence[Line]) -> None:
    """The table: accuracies in percent, losses in nats."""
    console = Console(width=None if sys.stdout.isatty() else 140)
    table = Table(title="Half way between models that never met: accuracy (%) or loss, and the barrier of the loss")
    for head in HEADS:
        table.add_column(head, justify="left" if head in HEADS[:2] else "right")
    for before, line in zip([None, *lines], lines, strict=False):
        if before is not None and before.setting != line.setting:
            table.add_section()
        table.add_row(*line.cells())
    console.print(table)


def markdown(lines: Sequence[Line]) -> str:
    """The table for a page."""
    rows = [HEADS, ["---", "---", *["---:"] * 5], *(line.cells() for line in lines)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
