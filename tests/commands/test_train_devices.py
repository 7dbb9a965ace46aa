"""`fusionlab fit`, `validate`, `test` and `predict` on several devices, and with loaders and modules of other kinds."""

import csv
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from torch.nn import functional

from fusionlab.cli import main
from fusionlab.commands import train
from fusionlab.data import Digits
from fusionlab.errors import InputError
from tests.commands.test_train import CONFIG

SHORT = ["--config", "small", "--trainer.limit_train_batches", "2", "--trainer.limit_val_batches", "1"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a config called small.yaml, which exports nothing."""
    monkeypatch.chdir(tmp_path)
    trainer = {"max_epochs": 1, "accelerator": "cpu"}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(CONFIG | {"trainer": trainer}))
    return tmp_path


def test_predictions_are_written_by_one_device(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are refused before any process starts: each would write its share into the same file."""
    monkeypatch.setattr(Trainer, "predict", lambda *arguments, **options: 1 / 0)
    with pytest.raises(InputError, match=r"predict would run on 2 devices.*expected one device: --trainer\.devices 1"):
        train.run("predict", ["--config", "small", "--trainer.devices", "2", "--trainer.strategy", "ddp"])
    assert not [*folder.glob("**/predictions.csv")]


@pytest.fixture
def two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process whose Trainer says that there are two, which is all that the command asks."""
    monkeypatch.setattr(Trainer, "world_size", 2)


@pytest.mark.usefixtures("two_devices")
def test_a_fit_on_several_devices_says_where_everything_went(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It measures nothing, and says so."""
    train.run("fit", SHORT)
    told = capsys.readouterr()
    assert "test/accuracy" not in told.out
    assert "logs/small/version_0/checkpoints/epoch=0-step=2.ckpt" in told.out
    assert "fusionlab test with --trainer.devices 1" in told.err


@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize("subcommand", ["validate", "test"])
@pytest.mark.usefixtures("folder")
def test_scores_of_several_devices_are_not_exact(subcommand: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Which is said once, unless each device goes through all samples."""
    train.run(subcommand, ["--config", "small"])
    assert capsys.readouterr().err.count("--trainer.devices 1 counts each once") == 1
    train.run(subcommand, ["--config", "small", "--trainer.use_distributed_sampler", "false"])
    assert "counts each once" not in capsys.readouterr().err


class Staged(LightningDataModule):
    """Makes the sets of each stage when that is set up, as Lightning's pages have it."""

    def setup(self, stage: str) -> None:
        digits = Digits()
        loaders = {"fit": ("train", "val"), "validate": ("val",), "test": ("test",)}
        for name in loaders[stage]:
            setattr(self, f"{name}_loader", getattr(digits, f"{name}_dataloader")())

    def train_dataloader(self) -> Any:
        return self.train_loader

    def val_dataloader(self) -> Any:
        return self.val_loader


class StagedWithTest(Staged):
    """The same with test images."""

    def test_dataloader(self) -> Any:
        return self.test_loader


class Plain(LightningModule):
    """Measures nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(64, 10)

    def training_step(self, batch: Any, batch_index: int) -> torch.Tensor:
        return functional.cross_entropy(self.net(batch["pixel_values"].flatten(1)), batch["labels"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize(("kind", "shown"), [("Staged", {"val"}), ("StagedWithTest", {"val", "test"})])
@pytest.mark.usefixtures("folder")
def test_a_fit_measures_what_the_data_have(kind: str, shown: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    """And what the model measures; the table is printed in any case."""
    train.run("fit", [*SHORT, "--data", f"{__name__}.{kind}"])
    out = capsys.readouterr().out
    assert {*re.findall(r"(\w+)/accuracy", out)} == shown
    train.run("fit", ["--model", f"{__name__}.Plain", "--data", f"{__name__}.{kind}", "--trainer.max_steps", "1"])
    out = capsys.readouterr().out
    assert "/loss" not in out
    assert "Lightning file" in out


class Twice(Digits):
    """Two loaders wherever one is."""

    def val_dataloader(self) -> Any:
        return [super().val_dataloader()] * 2

    def test_dataloader(self) -> Any:
        return [super().test_dataloader()] * 2


def test_several_loaders_count_together(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The scores of the same loader twice are those of it once; predictions follow one another."""
    found = []
    for kind in ("fusionlab.data.Digits", f"{__name__}.Twice"):
        train.run("fit", [*SHORT, "--data", kind, "--data.val_size", "100"])
        found.append(dict(re.findall(r"((?:val|test)/\w+)\D+([\d.]+)", capsys.readouterr().out)))
    assert found[0] == found[1]
    assert len(found[0]) == 4
    train.run("predict", ["--config", "small", "--data", f"{__name__}.Twice"])
    (predictions,) = folder.glob("logs/small/*/predictions.csv")
    _, *rows = csv.reader(predictions.open())
    assert [row[0] for row in rows] == [str(number) for number in range(2 * 397)]
    assert [row[1:] for row in rows[:397]] == [row[1:] for row in rows[397:]]


@pytest.mark.parametrize("subcommand", train.SUBCOMMANDS)
def test_a_last_checkpoint_that_is_not_there(folder: Path, subcommand: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing begins from scratch without a word; what an earlier run left is named, and no folder is made."""
    assert main([subcommand, "--config", "small", "--ckpt_path", "last"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "--ckpt_path last: there is no last checkpoint where this run keeps its own; expected the path of" in told
    assert not (folder / "logs").exists()
    earlier = folder / "logs" / "small" / "version_3" / "checkpoints" / "last.ckpt"
    earlier.parent.mkdir(parents=True)
    earlier.touch()
    assert main([subcommand, "--config", "small", "--ckpt_path", "last"]) == 2
    assert "such as logs/small/version_3/checkpoints/last.ckpt" in capsys.readouterr().err
    assert [path.name for path in (folder / "logs" / "small").iterdir()] == ["version_3"]


@pytest.mark.usefixtures("folder")
def test_a_last_checkpoint_in_a_folder_of_its_own_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    """The fit goes on from it."""
    keep = ["--trainer.callbacks", "ModelCheckpoint", "--trainer.callbacks.dirpath", "kept"]
    keep += ["--trainer.callbacks.save_last", "true"]
    train.run("fit", [*SHORT, *keep])
    train.run("fit", [*SHORT, *keep, "--ckpt_path", "last", "--trainer.max_epochs", "2"])
    assert "epoch=1-step=4.ckpt" in capsys.readouterr().out
