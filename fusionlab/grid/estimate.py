"""About how long the missing cells of a grid take: by the cells that are finished, else by one batch of each set."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import nn
from torch.utils.data import DataLoader

from fusionlab.errors import InputError
from fusionlab.evaluation.rows import END_MODEL, ENSEMBLE, MULTITASK, REFERENCES
from fusionlab.forward import logits
from fusionlab.grid.cells import Finished
from fusionlab.grid.design import Cell, EndModel
from fusionlab.grid.runner import GridRunner

# Makes the task that an end model is trained as, untrained.
Fresh = Callable[[EndModel], LightningModule]
# A step of training goes through a model forwards and, for twice as long, backwards.
TRAINING = 3


@dataclass(frozen=True)
class Expected:
    """The time that cells of one method and matching take.

    Attributes:
        seconds: for the missing ones together; None where nothing is known about them.
    """

    method: str
    matching: str
    cells: int
    missing: int
    seconds: float | None


def estimate(runner: GridRunner, state: Sequence[tuple[Cell, Finished | None]], fresh: Fresh) -> list[Expected]:
    """One line for each method and matching, in the order of the cells.

    A cell is taken to need the median time of the finished ones of its kind, or of other merges; before there are any,
    what one batch of each test set takes, times the batches, and for an end model that of its training as well. The
    latter leaves out early stopping, which makes it shorter, and matching, statistics and the start of each Trainer,
    which make it longer, of small models many times.

    Args:
        runner: of the grid.
        state: its cells.
        fresh: makes the task that an end model is trained as, untrained.
    """
    finished = [done for _, done in state if done is not None]
    lines = []
    # Merges are evaluated alike, whatever made them.
    probed: dict[str, float | None] = {}
    for method, matching in dict.fromkeys((cell.method, cell.matching) for cell, _ in state):
        alike = [(cell, done) for cell, done in state if (cell.method, cell.matching) == (method, matching)]
        missing = [cell for cell, done in alike if done is None]
        times = [done.seconds for _, done in alike if done is not None]
        if not times and method not in (END_MODEL, MULTITASK):
            times = [done.seconds for done in finished if done.cell.is_merge]
        kind = method if method in REFERENCES else "merge"
        if missing and not times and kind not in probed:
            probed[kind] = probe(runner, missing[0], fresh)
        each = median(times) if times else probed.get(kind)
        seconds = 0.0 if not missing else None if each is None else len(missing) * each
        lines.append(Expected(method, matching, len(alike), len(missing), seconds))
    return lines


def probe(runner: GridRunner, cell: Cell, fresh: Fresh) -> float | None:
    """Seconds that a cell takes, by one batch of each of its sets; None where its models or data cannot be had."""
    name = MULTITASK if cell.method == MULTITASK else cell.models[0]
    end = runner.end_model(name)
    try:
        data = runner.data.of(cell)
        if runner.has(name, cell.seed):
            model, training = runner.load(name, cell.seed), 0.0
        elif end.fit is None:
            return None
        else:
            model = fresh(end)
            training = _training(model, end) if cell.method in (END_MODEL, MULTITASK) else 0.0
        models = len(cell.models) if cell.method == ENSEMBLE else 1
        return training + models * _seconds(model, data.loaders)
    except InputError:
        # The run itself says what is missing, in every cell that needs it.
        return None


def _training(model: nn.Module, end: EndModel) -> float:
    end.data.prepare_data()
    end.data.setup("fit")
    found = end.data.train_dataloader()
    loaders = [loader for loader in (found if isinstance(found, list) else [found]) if isinstance(loader, DataLoader)]
    epochs = ((end.fit or {}).get("trainer") or {}).get("max_epochs") or 1
    return TRAINING * epochs * _seconds(model, loaders)


@torch.no_grad()
def _seconds(model: nn.Module, loaders: Iterable[DataLoader[Any]]) -> float:
    seconds = 0.0
    for loader in loaders:
        batch, start = next(iter(loader)), time.perf_counter()
        logits(getattr(model, "model", model).eval(), batch)
        seconds += len(loader) * (time.perf_counter() - start)
    return seconds
