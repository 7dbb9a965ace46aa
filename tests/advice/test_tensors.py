"""Weights of checkpoints of every kind, read without a model."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import fusionlab
from fusionlab.advice.tensors import module_weights, state_weights, stored_weights
from fusionlab.errors import InputError
from tests.commands.small import bert


def numbers(weights: fusionlab.advice.Weights) -> dict[str, torch.Tensor]:
    """All that can be read of a model."""
    with weights.opened() as reader:
        read = {name: reader.read(name, 0, spec.count) for name, spec in weights.tensors.items()}
    return {name: read[name].reshape(spec.shape) for name, spec in weights.tensors.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One model in four files."""
    model = bert(0)
    fusionlab.save(model, tmp_path / "folder")
    state = load_file(tmp_path / "folder" / "model.safetensors")
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    torch.save(state, pickled / "pytorch_model.bin")
    (pickled / "config.json").write_bytes((tmp_path / "folder" / "config.json").read_bytes())
    save_file(state, tmp_path / "state.safetensors")
    archive = {"state_dict": {f"model.{name}": t for name, t in state.items()}, "epoch": 1}
    torch.save(archive, tmp_path / "run.ckpt")
    torch.save(state, tmp_path / "state.pt")
    return tmp_path


@pytest.mark.parametrize("name", ["folder", "pickled", "state.safetensors", "state.pt", "run.ckpt"])
def test_every_kind_of_file(folder: Path, name: str) -> None:
    """The same numbers, all floating; those of a module too, under its names."""
    found = stored_weights(str(folder / name), "one")
    expected = {key: tensor for key, tensor in bert(0).state_dict().items() if tensor.is_floating_point()}
    read = {key.removeprefix("model."): tensor for key, tensor in numbers(found).items()}
    assert read.keys() == expected.keys()
    assert all(torch.equal(read[key], tensor) for key, tensor in expected.items())
    assert found.numbers == sum(tensor.numel() for tensor in expected.values())
    assert fusionlab.advise(folder / name, bert(0)).case == "same"


def test_what_is_tied_counts_once() -> None:
    table = torch.randn(5, 3)
    found = state_weights({"one": table, "two": table, "view": table[:2], "whole": torch.arange(3)}, "m", None, {})
    assert list(found.tensors) == ["one", "view"]
    assert module_weights(bert(0), "m").config["model_type"] == "bert"


@pytest.mark.parametrize("content", [{}, {"a": 1}, {"state_dict": 3}])
def test_files_without_tensors(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "a.pt")
    with pytest.raises(InputError, match=r"a\.pt holds"):
        stored_weights(str(tmp_path / "a.pt"), "a")


def test_a_stretch_is_the_same_from_file_and_memory(folder: Path) -> None:
    stored, held = stored_weights(str(folder / "folder"), "a"), module_weights(bert(0), "b")
    name = "bert.encoder.layer.0.output.dense.weight"
    with stored.opened() as one, held.opened() as other:
        assert torch.equal(one.read(name, 5, 40), other.read(name, 5, 40))
