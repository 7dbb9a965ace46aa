"""Bare state dicts with a description are end models: every command makes of them what it makes of their folders."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from torch import Tensor

from fusionlab.checkpoints import hub
from tests.commands.conftest import Command


@pytest.fixture
def bare(ckpts: Path, tmp_path: Path) -> Path:
    """The state dicts of ``a`` and ``b``, of BERTs and of timm's models, in files alone."""
    for name in ("a", "b", "bert_a", "bert_b", "timm_a"):
        state = load_file(ckpts / name / "model.safetensors")
        save_file(state, tmp_path / f"{name}.safetensors")
        torch.save(state, tmp_path / f"{name}.pth")
    return tmp_path


def merged(command: Command, output: Path, *arguments: object) -> dict[str, Tensor]:
    outcome = command("merge", *arguments, "--output", output)
    assert (outcome.code, outcome.err) == (0, "")
    return load_file(output / "model.safetensors")


@pytest.mark.parametrize("kind", ["safetensors", "pth"])
def test_a_merge_of_files(ckpts: Path, bare: Path, command: Command, kind: str) -> None:
    """Of two files, streamed or read, and of a file with a folder: what the folders make, config and tokenizer too."""
    expected = merged(command, bare / "expected", ckpts / "a", ckpts / "b")
    files = [bare / f"{name}.{kind}" for name in "ab"]
    for index, models in enumerate(([*files], [files[0], ckpts / "b"])):
        found = merged(command, bare / str(index), *models, "--architecture", ckpts / "a")
        assert found.keys() == expected.keys()
        for name, tensor in found.items():
            torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-6)
        written = {path.name for path in (bare / "expected").iterdir()}
        assert {path.name for path in (bare / str(index)).iterdir()} == written
        assert "preprocessor_config.json" in written
        assert f"`a.{kind}`" in (bare / str(index) / "README.md").read_text()


def test_it_is_repeated_by_its_config(ckpts: Path, bare: Path, command: Command) -> None:
    """The config has the paths that were given."""
    files = [bare / f"{name}.safetensors" for name in "ab"]
    first = merged(command, bare / "one", *files, "--architecture", ckpts / "a")
    told = yaml.safe_load((bare / "one" / "fusionlab.yaml").read_text())
    assert told["ckpts"] == [str(file) for file in files]
    again = merged(command, bare / "two", "--config", bare / "one" / "fusionlab.yaml")
    assert all(torch.equal(tensor, again[name]) for name, tensor in first.items())


def test_other_commands(ckpts: Path, bare: Path, command: Command) -> None:
    """Inspected, checked, matched and fused as their folders are; one of timm is too."""
    files, of = [bare / "bert_a.pth", bare / "bert_b.safetensors"], ["--architecture", ckpts / "bert_a"]
    assert command("check", *files, *of).code == 0
    assert "attention.qk" in command("inspect", files[0], *of).out
    assert command("match", files[0], "--anchor", files[1], *of, "--output", bare / "twin").code == 0
    assert command("match", ckpts / "bert_a", "--anchor", ckpts / "bert_b", "--output", bare / "expected").code == 0
    found, expected = (load_file(bare / place / "model.safetensors") for place in ("twin", "expected"))
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-5)
    assert command("inspect", bare / "timm_a.safetensors", "--architecture", ckpts / "timm_a").code == 0


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-9])


def _other(file: Path) -> None:
    torch.save({"state_dict": {"w": torch.ones(2)}, "epoch": 3}, file)


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [("a.safetensors", _cut, "truncated"), ("a.pth", _cut, "truncated"), ("a.pth", _other, "'state_dict'")],
)
def test_damage_is_told_by_the_name_that_was_given(
    ckpts: Path, bare: Path, command: Command, name: str, damage: Callable[[Path], None], words: str
) -> None:
    """One sentence, nothing written, and no word of the folder that stands in."""
    damage(bare / name)
    outcome = command("merge", bare / name, ckpts / "b", "--architecture", ckpts / "a", "--output", bare / "out")
    assert outcome.code == 2
    assert words in outcome.err
    assert str(bare / name) in outcome.err
    assert str(Path(tempfile.gettempdir()) / "fusionlab-") not in outcome.err
    assert not (bare / "out").exists()


@pytest.mark.parametrize(
    ("folder", "words"), [("nowhere", "no such folder"), ("a.pth", "a file"), (".", "config.json")]
)
def test_descriptions_that_are_none(bare: Path, command: Command, folder: str, words: str) -> None:
    """Told before any work."""
    paths = [bare / "a.pth", bare / "b.pth"]
    outcome = command("merge", *paths, "--architecture", bare / folder, "--output", bare / "out")
    assert outcome.code == 2
    assert words in outcome.err


def test_without_a_description(bare: Path, command: Command) -> None:
    """The way on is told; one description is not that of the next command."""
    hub.use_architecture(None)
    outcome = command("merge", bare / "a.pth", bare / "b.pth", "--output", bare / "out")
    assert outcome.code == 2
    assert "--architecture" in outcome.err
