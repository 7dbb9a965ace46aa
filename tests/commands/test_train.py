"""`fusionlab fit`, `validate`, `test` and `predict` from YAML, in a folder of their own."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch.utils.data import DataLoader, IterableDataset
from transformers import ViTForImageClassification

from fusionlab.cli import main
from fusionlab.commands import train
from fusionlab.configs import shipped_folder
from fusionlab.data import Digits
from fusionlab.errors import InputError
from fusionlab.tasks.durable import DurableCheckpointIO
from tests.parts import one_in

CONFIG: dict[str, Any] = {
    "trainer": {
        "max_epochs": 1,
        "accelerator": "cpu",
        "callbacks": [{"class_path": "fusionlab.tasks.ExportCheckpoint", "init_args": {"output": "out"}}],
    },
    "model": {
        "class_path": "fusionlab.tasks.ImageClassification",
        "init_args": {
            "model": {
                "library": "transformers", "model_type": "vit", "image_size": 8, "patch_size": 4, "num_channels": 1,
                "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32,
            },
            "num_classes": 10,
        },
    },
    "data": {"class_path": "fusionlab.data.Digits", "init_args": {"batch_size": 128}},
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a config called small.yaml."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(CONFIG))
    return tmp_path


def test_fit_then_test_then_predict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The fit exports a folder that transformers loads; its Lightning file is tested and predicts every image."""
    train.run("fit", ["--config", "small", "--seed", "3"])
    table = capsys.readouterr().out
    assert "val/accuracy" in table
    assert "test/accuracy" in table
    assert "out" in table
    assert "litlogger" not in table
    # Lightning's summary of the model is progress, and no result.
    assert "Trainable params" not in table
    ViTForImageClassification.from_pretrained(folder / "out")
    logs = folder / "logs" / "small" / "version_0"
    assert yaml.safe_load((logs / "config.yaml").read_text())["seed_everything"] == 3
    (lightning,) = (logs / "checkpoints").glob("*.ckpt")
    capsys.readouterr()
    train.run("test", ["--config=small.yaml", f"--ckpt_path={lightning}"])
    told = capsys.readouterr()
    assert "test/accuracy" in told.out
    assert "random weights" not in told.err
    # A folder is a trained model too, and what a config makes anew is none.
    train.run("validate", ["--config", "small", "--model.model", str(folder / "out")])
    assert "random weights" not in capsys.readouterr().err
    train.run("validate", ["--config", "small"])
    assert "fusionlab validate: the model is a new one with random weights" in capsys.readouterr().err
    train.run("predict", ["--config", "small", "--ckpt_path", str(lightning)])
    (predictions,) = folder.glob("logs/small/*/predictions.csv")
    rows = list(csv.reader(predictions.open()))
    assert len(rows) == 1 + 397
    assert rows[0][:3] == ["sample", "predicted", "0"]
    with pytest.raises(InputError, match="exists already"):
        train.run("fit", ["--config", "small"])


@pytest.mark.parametrize(
    "wish",
    [["--trainer.enable_progress_bar", "false"], ["--trainer.callbacks+", "TQDMProgressBar"]],
    ids=["none", "own"],
)
def test_another_bar_or_none(folder: Path, wish: list[str]) -> None:
    """Either takes the place of the command's own."""
    train.run("fit", ["--config", "small", "--trainer.limit_train_batches", "1", *wish])
    assert (folder / "out" / "config.json").exists()


def test_all_numbers_are_those_of_the_best_weights(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Validation and test metrics of the table belong to the weights that are kept; the logs hold each epoch once."""
    # The highest loss is called best, so that it is the first epoch's and not the last one's.
    keep = {
        "class_path": "lightning.pytorch.callbacks.ModelCheckpoint",
        "init_args": {"monitor": "val/loss", "mode": "max"},
    }
    logger = {"class_path": "lightning.pytorch.loggers.CSVLogger", "init_args": {"save_dir": "logs"}}
    trainer = CONFIG["trainer"] | {"max_epochs": 2, "callbacks": [keep], "logger": logger}
    model = CONFIG["model"]["init_args"] | {"learning_rate": 3e-3}
    config = CONFIG | {"trainer": trainer, "model": CONFIG["model"] | {"init_args": model}}
    (folder / "best.yaml").write_text(yaml.safe_dump(config))
    train.run("fit", ["--config", "best"])
    shown = dict(re.findall(r"((?:val|test)/\w+)\D+([\d.]+)", capsys.readouterr().out))
    (metrics,) = folder.glob("logs/**/metrics.csv")
    rows = list(csv.DictReader(metrics.open()))
    first, last = (float(row["val/loss"]) for row in rows if row.get("val/loss"))
    assert float(shown["val/loss"]) == pytest.approx(first, abs=1e-4)
    assert first > last + 1e-3
    assert float(shown["test/loss"]) > last + 1e-3


class Streamed(IterableDataset):
    """Samples one after another, nobody knows how many."""

    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[Any]:
        return (self.samples[index] for index in range(len(self.samples)))


class StreamedDigits(Digits):
    """Digits whose validation and test images are streams."""

    def val_dataloader(self) -> DataLoader:
        loader: Any = super().val_dataloader()
        return DataLoader(Streamed(loader.dataset), batch_size=50)

    def test_dataloader(self) -> DataLoader:
        return DataLoader(Streamed(super().test_dataloader().dataset), batch_size=50)


def test_streams_are_measured_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A loader that does not say how many batches it has gives the numbers of one that does."""
    tables = []
    for kind in ("fusionlab.data.Digits", f"{__name__}.StreamedDigits"):
        callbacks = [{"class_path": "fusionlab.tasks.ExportCheckpoint", "init_args": {"output": kind}}]
        data = {"class_path": kind, "init_args": {"batch_size": 128, "val_size": 100}}
        config = CONFIG | {"data": data, "trainer": CONFIG["trainer"] | {"callbacks": callbacks}}
        (folder / "streams.yaml").write_text(yaml.safe_dump(config))
        train.run("fit", ["--config", "streams"])
        found = dict(re.findall(r"((?:val|test)/\w+)\D+([\d.]+)", capsys.readouterr().out))
        tables.append({name: float(value) for name, value in found.items()})
    assert {"val/accuracy", "test/accuracy"} <= tables[0].keys()
    assert tables[1] == pytest.approx(tables[0], abs=2e-4), "four decimals are shown"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "smal"], "no config smal .*did you mean small"),
        (["--config", "small", "--trainer.max_epocs", "3"], "max_epocs"),
        (["--config", "small", "--model.lerning_rate", "3"], "lerning_rate"),
        (["--config", "small", "--model.num_classes", "ten"], "num_classes"),
        (["--config", "small", "--model.num_classes", "0"], "num_classes is 0"),
        (["--config", "small", "--data.val_size", "-1"], "val_size is -1"),
        (["--config", "small", "--trainer.devices", str(2**63)], "devices is 9223372036854775808; expected at most"),
        (["--config", "small", "--ckpt_path", "gone.ckpt"], "gone.ckpt"),
        (["--config", "broken"], "config"),
        (["--nothing", "1"], "nothing|required"),
    ],
)
def test_wrong_input_is_one_sentence(folder: Path, arguments: list[str], message: str) -> None:
    """The wrong key or value is named on one line, and nothing is written."""
    (folder / "broken.yaml").write_text("a: [")
    with pytest.raises(InputError, match=message) as caught:
        train.run("fit", arguments)
    assert "\n" not in str(caught.value)
    told = str(caught.value)
    for place in (folder, shipped_folder()):  # their paths are as long as the machine has them
        told = told.replace(str(place), "")
    assert len(told) < 250
    assert sorted(path.name for path in folder.iterdir()) == ["broken.yaml", "small.yaml"]


@pytest.mark.parametrize("subcommand", train.SUBCOMMANDS)
def test_help(subcommand: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every subcommand explains itself."""
    with pytest.raises(SystemExit) as caught:
        train.run(subcommand, ["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "--seed" in text
    assert "--trainer.max_epochs" in text


def test_device_that_does_not_exist_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--config", "vit_digits.yaml", "--trainer.accelerator", "nope"]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1
    assert "nope" in told[0]


def test_checkpoints_of_a_fit_are_written_by_the_durable_plugin(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the config names one of its own."""
    written: list[str] = []
    save = DurableCheckpointIO.save_checkpoint

    def recorded(self: DurableCheckpointIO, content: dict[str, Any], path: str, storage_options: Any = None) -> None:
        written.append(Path(path).suffix)
        save(self, content, path, storage_options)

    monkeypatch.setattr(DurableCheckpointIO, "save_checkpoint", recorded)
    train.run("fit", ["--config", "small"])
    assert written == [".ckpt"]
    own = ["--trainer.plugins", "lightning.pytorch.plugins.TorchCheckpointIO"]
    train.run("fit", ["--config", "small", *own, "--trainer.callbacks", "null"])
    assert written == [".ckpt"]


def test_an_output_that_cannot_be_written_is_told_before_training(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By trying, not by permissions."""
    config = yaml.safe_load((folder / "small.yaml").read_text())
    config["trainer"]["callbacks"][0]["init_args"]["output"] = "/proc/out"
    (folder / "small.yaml").write_text(yaml.safe_dump(config))
    monkeypatch.setattr("fusionlab.tasks.ImageClassification.training_step", lambda *arguments: 1 / 0)
    assert main(["fit", "--config", "small"]) == 2
    assert "/proc/out: nothing can be written into /proc" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("entry", "value"),
    one_in(2, [
        ("pytorch-lightning_version", None), ("pytorch-lightning_version", 3), ("loops", 3),
        ("optimizer_states", "x"), ("state_dict", {"x": torch.zeros(1)}),
    ]),
)  # fmt: skip
def test_a_checkpoint_that_is_none_of_this_run_is_one_sentence(folder: Path, entry: str, value: object) -> None:
    """Its entries are missing, of other types or of another model; it stands for those of other programs too."""
    line = ["fit", "--config", "small", "--trainer.max_steps", "1", "--trainer.limit_val_batches", "1"]
    line += ["--trainer.limit_test_batches", "1"]
    assert main(line) == 0
    (lightning,) = folder.glob("logs/small/*/checkpoints/*.ckpt")
    archive = torch.load(lightning, weights_only=True)
    archive[entry] = value
    if value is None:
        del archive[entry]
    torch.save(archive, lightning)
    more = ["--ckpt_path", str(lightning), "--trainer.callbacks", "null", "--trainer.max_steps", "2"]
    with pytest.raises(InputError, match=r"\.ckpt: the fit cannot be resumed from it \(.*\); expected a checkpoint"):
        train.run("fit", [*line[1:], *more])


def test_a_file_in_place_of_a_data_module() -> None:
    with pytest.raises(InputError, match=r"--data my\.csv is a file, .*expected a data module.* --data\.path my\.csv"):
        train.run("fit", ["--config", "vit_digits.yaml", "--data", "my.csv"])
