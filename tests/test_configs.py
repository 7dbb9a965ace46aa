"""A bare config name is found where it should be; every shipped config parses, builds and explains its fields."""

import importlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from lightning.pytorch import LightningDataModule, LightningModule

from fusionlab.cli import main
from fusionlab.commands import train
from fusionlab.configs import resolve, shipped_folder
from fusionlab.errors import InputError
from tests.parts import one_in

# Configs of `fusionlab fit`; those of other commands have no model.
SHIPPED = sorted(shipped_folder().glob("*.yaml"))
# Those of `fusionlab fit`, whose model is a class that is named, and those of a fusion.
FUSIONS = [path for path in SHIPPED if "models" in (yaml.safe_load(path.read_text()).get("model") or {})]
CONFIGS = [
    path for path in SHIPPED if {"model", "data"} <= yaml.safe_load(path.read_text()).keys() and path not in FUSIONS
]
# What stands in for checkpoints of the hub: the same kind of model, smaller.
BODY = {"hidden_size": 12, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8}
TEXT = {**BODY, "vocab_size": 50}
TINY: dict[str, dict[str, Any]] = {
    "FacebookAI/roberta-base": {"model_type": "roberta", **TEXT},
    "microsoft/deberta-v3-large": {"model_type": "deberta-v2", **TEXT},
    "checkpoints/minilm": {"model_type": "bert", **TEXT},
    "google-bert/bert-base-uncased": {"model_type": "bert", **TEXT},
    "google-t5/t5-small": {
        "model_type": "t5",
        "d_model": 12,
        "num_heads": 2,
        "d_kv": 6,
        "d_ff": 8,
        "num_layers": 1,
        "vocab_size": 50,
    },
    "openai/clip-vit-base-patch32": {
        "model_type": "clip",
        "text_config": TEXT,
        "vision_config": {**BODY, "image_size": 8, "patch_size": 4},
    },
}


@pytest.mark.parametrize("task", ["emotion", "ner", "glue"])
@pytest.mark.parametrize("model", ["roberta", "deberta"])
def test_configs_of_the_paper_have_its_values(model: str, task: str) -> None:
    """AdamW at 1e-5, warm-up over 6 % of the steps, batches of 16, 20 epochs; 10 in the published code for GLUE."""
    config = yaml.safe_load((shipped_folder() / f"{model}_{task}.yaml").read_text())
    training, data = config["model"]["init_args"], config["data"]["init_args"]
    assert [training[name] for name in ("learning_rate", "warmup_ratio", "weight_decay")] == [1e-5, 0.06, 0]
    assert training["schedule"] == "linear"
    assert (data["batch_size"], data["eval_batch_size"]) == (16, 32)
    epochs = 10 if (model, task) == ("roberta", "glue") else 20
    stopping = config["trainer"]["callbacks"][0]["init_args"]
    assert (config["trainer"]["max_epochs"], stopping["patience"]) == (epochs, epochs)


def test_configs_that_hold_images_out_keep_the_best_epoch() -> None:
    """Images that are held out for nothing would be lost to training."""
    for name in ("vit_cifar10", "vit_cifar100", "resnet_cifar10"):
        config = yaml.safe_load((shipped_folder() / f"{name}.yaml").read_text())
        assert config["data"]["init_args"]["val_size"] == 5000
        monitored = [callback["init_args"].get("monitor") for callback in config["trainer"]["callbacks"]]
        assert "val/score" in monitored


def test_nearest_config_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each nearer place hides the farther one, with or without the suffix."""
    monkeypatch.chdir(tmp_path)
    assert resolve("vit_digits").resolve() == shipped_folder() / "vit_digits.yaml"
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "vit_digits.yaml").write_text("")
    assert resolve("vit_digits.yaml") == Path("configs/vit_digits.yaml")
    (tmp_path / "vit_digits.yaml").write_text("")
    assert resolve("vit_digits") == Path("vit_digits.yaml")
    assert resolve("configs/vit_digits.yaml") == Path("configs/vit_digits.yaml")
    assert resolve(tmp_path / "vit_digits.yaml") == tmp_path / "vit_digits.yaml"


def test_unknown_name_says_where_it_was_looked_for_and_what_is_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence names the places and the close matches."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"did you mean vit_digits\.yaml") as caught:
        resolve("vit_digit")
    assert str(tmp_path) in str(caught.value)
    assert str(shipped_folder()) in str(caught.value)


def built(described: dict[str, Any]) -> Any:
    """The object that a config's class_path and init_args describe, checkpoints replaced by tiny models."""
    module, name = described["class_path"].rsplit(".", 1)
    arguments = dict(described["init_args"])
    if isinstance(arguments.get("model"), str):
        arguments["model"] = TINY[arguments["model"]]
    return getattr(importlib.import_module(module), name)(**arguments)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_config_builds(path: Path) -> None:
    """Model, data and callbacks take what the config gives them, and fit each other; nothing is read from a hub."""
    config = yaml.safe_load(path.read_text())
    model, data = built(config["model"]), built(config["data"])
    assert isinstance(model, LightningModule)
    assert isinstance(data, LightningDataModule)
    assert data.task == model.task
    if getattr(data, "_labels", None) or model.task == "tokens":
        assert data.class_names == model.class_names
    for callback in config["trainer"]["callbacks"]:
        built(callback)
    monitored = {callback["init_args"].get("monitor") for callback in config["trainer"]["callbacks"]} - {None}
    logged = {"val/score" if model.val_scores.main != "perplexity" else "val/loss"}
    assert monitored <= logged


@pytest.mark.parametrize("path", [*CONFIGS, *FUSIONS], ids=lambda path: path.stem)
def test_shipped_config_explains_every_field(path: Path) -> None:
    """A comment stands above each field that has a value."""
    lines = path.read_text().splitlines()
    structure = {"trainer:", "model:", "data:", "init_args:", "callbacks:"}
    for above, line in zip(["", *lines], lines, strict=False):
        text = line.strip()
        if text and not text.startswith("#") and text not in structure:
            assert above.strip().startswith("#"), f"{path.name}: no comment above {text!r}"


@pytest.mark.parametrize("path", one_in(2, CONFIGS), ids=lambda path: path.stem)
def test_shipped_config_is_parsed_by_the_command(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command line takes it, and says what it understood."""
    with pytest.raises(SystemExit) as caught:
        train.run("fit", ["--config", str(path), "--print_config"])
    assert caught.value.code in (0, None)
    understood = yaml.safe_load(capsys.readouterr().out)
    written = yaml.safe_load(path.read_text())
    for part in ("model", "data"):
        assert understood[part]["class_path"] == written[part]["class_path"]
        assert written[part]["init_args"].items() <= understood[part]["init_args"].items()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
            f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
        ), "stands for more than 100,000 values"),
        ("a: &a [*a]\n", "nested too deeply"),
        ("[" * 3000, "nested too deeply"),
        ("a: " + "[" * 100 + "]" * 100, "nested too deeply"),
        ("a: '" + "x" * 2**20 + "'", "expected a config of at most 1,048,576"),
        ("\udcff", "not UTF-8"),
    ],
    ids=["laughs", "holds itself", "open brackets", "deep", "large", "bytes"],
)  # fmt: skip
def test_a_config_that_is_more_than_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    """Is refused in one sentence with its name, by every command that takes one."""
    (tmp_path / "x.yaml").write_bytes(text.encode(errors="surrogateescape"))
    for command in (["merge", "a", "b", "--output", "out"], ["fit"]):
        assert main([*command, "--config", str(tmp_path / "x.yaml")]) == 2
        told = capsys.readouterr().err
        assert told.count("\n") == 1
        assert f"{tmp_path}/x.yaml" in told
        assert words in told


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.mkdir [made]",
        "a: !!python/name:os.system",
        "{1: 2}",
        "[]",
        "- a",
        "null",
        "a",
        "~: 3",
        "",
    ],
)
def test_a_config_that_is_no_mapping_of_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """One sentence with its name, and nothing of what is in it but a tag, which runs nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.yaml").write_text(text)
    for command in (["merge", "a", "b", "--output", "out"], ["fit"]):
        assert main([*command, "--config", "x.yaml"]) == 2
        told = capsys.readouterr().err
        assert told.count("\n") == 1
        assert "x.yaml" in told
    assert [path.name for path in tmp_path.iterdir()] == ["x.yaml"]
