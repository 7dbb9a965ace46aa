"""The order of training batches follows the seed and the epoch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import LightningDataModule, LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, RandomSampler

from fusionlab.data import Digits, TextClassification, Union
from tests.tasks.sample import jsonl

OPTIONS: dict[str, Any] = {"test_split": None, "batch_size": 4, "labels": ["a"]}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


class Seen(LightningModule):
    """Notes the batches of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.zeros(()))
        self.epochs: dict[int, list[Any]] = {}

    def training_step(self, batch: dict[str, torch.Tensor], batch_index: int) -> torch.Tensor:
        value = next(value for name, value in batch.items() if name != "labels")
        self.epochs.setdefault(self.current_epoch, []).append(value.tolist())
        return self.one * 0

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def seen(data: LightningDataModule, path: Path | None = None, **options: Any) -> dict[int, list[Any]]:
    """The batches of each of three epochs, which are kept in a file, or of those that are left after it."""
    torch.manual_seed(5)
    module = Seen()
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(accelerator="cpu", enable_checkpointing=False, **{"max_epochs": 3, **quiet, **options})
    trainer.fit(module, datamodule=data, ckpt_path=path, weights_only=False)
    trainer.save_checkpoint("last.ckpt")
    return module.epochs


KINDS: dict[str, Callable[[str], LightningDataModule]] = {
    "digits": lambda _: Digits(batch_size=300),
    "divisible": lambda _: Digits(batch_size=200, val_size=200),
    "texts": lambda path: TextClassification(path, "bytes", **OPTIONS),
    "workers": lambda path: TextClassification(path, "bytes", num_workers=1, **OPTIONS),
    "grouped": lambda path: TextClassification(path, "bytes", group_by_length=True, **OPTIONS),
    "union": lambda path: Union([TextClassification(path, "bytes", **OPTIONS)], batch_size=7),
}


@pytest.mark.parametrize("kind", KINDS)
def test_orders_are_those_of_the_seed_and_the_epoch(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit that makes its loaders anew for each epoch sees what another one sees, and so does one that goes on."""
    monkeypatch.chdir(tmp_path)
    path = jsonl(tmp_path / "x.jsonl", [{"text": "it" * (1 + row % 9) + str(row), "label": 0} for row in range(30)])

    def make() -> LightningDataModule:
        return KINDS[kind](path)

    whole = seen(make())
    assert whole[0] != whole[1] != whole[2] != whole[0]
    assert seen(make(), reload_dataloaders_every_n_epochs=1) == whole
    seen(make(), max_epochs=1)
    rest = seen(make(), Path("last.ckpt"))
    assert list(rest) == [1, 2]
    assert rest[2] == whole[2]
    # Workers are given their first samples before the Trainer has read which epoch comes: they have the first order.
    assert rest[1] == whole[0 if kind == "workers" else 1]


def test_the_first_order_is_that_of_torch() -> None:
    """For one seed that of a loader which shuffles by a generator of its own; later ones go on from it."""
    data = Digits(batch_size=300)
    torch.manual_seed(7)
    own, usual = (
        data.train_dataloader(),
        DataLoader(data.train_set, 300, shuffle=True, generator=torch.Generator().manual_seed(7)),
    )
    for _ in range(2):
        for found, expected in zip(own, usual, strict=True):
            assert torch.equal(found["pixel_values"], expected["pixel_values"])


def test_a_trainer_of_several_devices_may_take_its_place() -> None:
    """It does so where it finds a random sampler."""
    assert isinstance(Digits().train_dataloader().sampler, RandomSampler)
