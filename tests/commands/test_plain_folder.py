"""The plain folder of models in Lightning files: with the tokenizer of their training, by the library that reads it."""

from pathlib import Path

import pytest
import torch

from fusionlab.data import tokenizers
from fusionlab.data.tokenizers import byte_tokenizer
from tests.commands.conftest import Command


@pytest.fixture
def trained(ckpts: Path, tmp_path: Path) -> list[Path]:
    """Two Lightning files that were trained with a tokenizer of the hub."""
    paths = [tmp_path / f"{name}.ckpt" for name in "ab"]
    for path in paths:
        archive = torch.load(ckpts / f"lightning_{path.name}", weights_only=False)
        torch.save(archive | {"datamodule_hyper_parameters": {"tokenizer": "team/tokens"}}, path)
    return paths


def test_a_tokenizer_of_the_hub_comes_along(
    trained: list[Path], tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(tokenizers, "load_tokenizer", lambda name: (asked.append(name), byte_tokenizer())[1])
    assert command("merge", *trained, "--output", tmp_path / "merged").code == 0
    assert asked == ["team/tokens"]
    assert (tmp_path / "merged" / "tokenizer.json").is_file()
    assert "library_name: transformers" in (tmp_path / "merged" / "README.md").read_text()


def test_one_that_cannot_be_had_is_told(trained: list[Path], tmp_path: Path, command: Command) -> None:
    """The merge is there."""
    outcome = command("merge", *trained, "--output", tmp_path / "merged")
    assert outcome.code == 0
    assert f"The plain folder is without the tokenizer that {trained[0]} was trained with: team/tokens" in outcome.err
    assert (tmp_path / "merged" / "model.safetensors").is_file()
    assert not (tmp_path / "merged" / "tokenizer.json").exists()
