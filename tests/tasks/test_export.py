"""Which weights are exported, and files of models that were compiled."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Trainer
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

import fusionlab
from fusionlab.data import Digits
from fusionlab.tasks import ExportCheckpoint, ImageClassification
from tests.tasks.test_image_classification import VIT

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
FEW = {"limit_train_batches": 2, "limit_val_batches": 1, "num_sanity_val_steps": 0}


def fitted(task: LightningModule, callbacks: list[Callback], **options: Any) -> Trainer:
    trainer = Trainer(
        accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False, callbacks=callbacks,
        **{"max_epochs": 2, **FEW},
    )  # fmt: skip
    trainer.fit(task, datamodule=Digits(), **options)
    return trainer


def equal(model: nn.Module, state: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, state[f"model.{name}"]) for name, value in model.state_dict().items())


def test_the_monitored_checkpoint_is_exported_wherever_it_stands(tmp_path: Path) -> None:
    """Here behind one that keeps each epoch; the best epoch is the first, since the highest loss is called best."""
    each = ModelCheckpoint(tmp_path / "each", filename="{epoch}", save_top_k=-1)
    best = ModelCheckpoint(tmp_path / "best", monitor="val/loss", mode="max")
    task = ImageClassification(VIT, 10)
    fitted(task, [each, best, ExportCheckpoint(str(tmp_path / "out"))])
    exported = fusionlab.load(tmp_path / "out")
    assert equal(exported, torch.load(tmp_path / "each" / "epoch=0.ckpt", weights_only=True)["state_dict"])
    assert not equal(exported, task.state_dict())


class Compiled(ImageClassification):
    """Compiled as Lightning's pages say; by a backend that compiles nothing."""

    def configure_model(self) -> None:
        if not hasattr(self.model, "_orig_mod"):
            self.model: Any = torch.compile(self.model, backend="eager")


def test_a_compiled_model_is_stored_as_the_model_that_it_is(tmp_path: Path) -> None:
    """Its file loads by itself, is exported, and goes on compiled or not."""
    keep = ModelCheckpoint(tmp_path / "kept", monitor="val/loss")
    fitted(Compiled(VIT, 10), [keep, ExportCheckpoint(str(tmp_path / "out"))])
    state = torch.load(keep.best_model_path, weights_only=True)["state_dict"]
    assert not any("_orig_mod" in name for name in state)
    assert equal(fusionlab.load(keep.best_model_path), state)
    assert equal(fusionlab.load(tmp_path / "out"), state)
    for kind in (Compiled, ImageClassification):
        task = kind(VIT, 10)
        trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, limit_test_batches=1)
        trainer.test(task, datamodule=Digits(), ckpt_path=keep.best_model_path, verbose=False, weights_only=True)
        found = {name.replace("_orig_mod.", ""): value for name, value in task.state_dict().items()}
        assert all(torch.equal(found[name], value) for name, value in state.items())
