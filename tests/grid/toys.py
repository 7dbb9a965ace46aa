"""Toy data, end models and grids: small enough that a whole grid takes a second."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader

from fusionlab import checkpoints
from fusionlab.data import Digits
from fusionlab.evaluation.results import Row
from fusionlab.grid.cells import Finished
from fusionlab.grid.design import Cell, EndModel, Grid, make_groups
from fusionlab.grid.runner import GridRunner
from fusionlab.matching.recipe import recipe
from tests.commands.small import bert, vit

BOTH: dict[str, Any] = {"simple": {}, "regmean": {}}
CPU = {"accelerator": "cpu", "devices": 1}


class Words(LightningDataModule):
    """Random tokens with random labels for `tests.commands.small.bert`; the same for the same settings.

    `found` is set while the data are read, as data modules do with what is in their files.
    """

    def __init__(self, name: str = "words", task: str = "classification", classes: int = 4, seed: int = 0) -> None:
        super().__init__()
        self.name, self.task, self.classes, self.seed = name, task, classes, seed
        self.found: list[int] | None = None

    def setup(self, stage: str) -> None:
        self.found = list(range(self.classes))

    def rows(self, split: str, count: int) -> DataLoader[dict[str, Tensor]]:
        generator = torch.Generator().manual_seed(self.seed * 3 + ("train", "val", "test").index(split))
        tokens = torch.randint(5, 31, (count, 6), generator=generator)
        size = (count, self.classes) if self.task == "multilabel" else (count,)
        labels = torch.randint(2 if self.task == "multilabel" else self.classes, size, generator=generator)
        rows: Any = [{"input_ids": t, "labels": y} for t, y in zip(tokens, labels, strict=True)]
        return DataLoader(rows, batch_size=8)

    def train_dataloader(self) -> DataLoader[dict[str, Tensor]]:
        return self.rows("train", 24)

    def test_dataloader(self) -> DataLoader[dict[str, Tensor]]:
        return self.rows("test", 16)

    def texts(self, split: str) -> list[str]:
        """One text that all sets share, and one of its own."""
        return [f"{split} of {self.name}", "the same everywhere"]


def vits(folder: Path, seeds: tuple[int, ...] = (0,)) -> dict[str, EndModel]:
    """Three ViTs on digits, each on some classes in its test set, as checkpoints for each seed."""
    ends = {}
    for index, name in enumerate("abc"):
        for seed in seeds:
            path = folder / f"{name}-{seed}"
            if not path.exists():
                checkpoints.save(vit(10 * index + seed), path)
        ends[name] = EndModel(Digits(classes=[3 * index, 3 * index + 1]), str(folder / f"{name}-{{seed}}"))
    return ends


def berts(folder: Path, **data: Any) -> dict[str, EndModel]:
    """Two BERTs on random words."""
    for index, name in enumerate("ab"):
        if not (folder / f"bert_{name}").exists():
            checkpoints.save(bert(index), folder / f"bert_{name}")
    return {name: EndModel(Words(name, seed=ord(name), **data), str(folder / f"bert_{name}")) for name in "ab"}


def grid(ends: dict[str, EndModel], **changes: Any) -> Grid:
    """All pairs of some end models, the plain average, the paper's matching."""
    values: dict[str, Any] = {
        "groups": make_groups(list(ends), "pairs"),
        "methods": {"simple": {}},
        "matchings": {"paper": recipe("paper")},
        "samples": 20,
        "test_samples": 30,
    }
    return Grid(ends, **(values | changes))


def no_training(model: EndModel, seed: int, path: Path) -> None:
    """For grids whose end models are all given."""
    raise AssertionError("nothing was to be trained")


def runner(grid: Grid, folder: Path, train: Any = no_training) -> GridRunner:
    """A runner on the CPU."""
    return GridRunner(grid, folder, train, CPU)


def value(finished: list[Finished], cell: Cell, data_set: str, metric: str = "accuracy") -> float:
    """One number of one cell."""
    (done,) = [done for done in finished if done.cell == cell]
    assert done.error is None, done.error
    (row,) = [row for row in done.rows if (row.data_set, row.metric) == (data_set, metric)]
    return row.value


def numbers(finished: list[Finished]) -> list[Row]:
    """All rows without their times."""
    return [replace(row, seconds=None) for done in finished for row in done.rows]
