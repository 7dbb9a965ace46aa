"""Files with different names for the same parameters are merged without models."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from fusionlab import checkpoints
from fusionlab.checkpoints import weightless
from fusionlab.commands import merge_models
from fusionlab.streaming import StoredModel, open_folder, under_one_naming
from tests.commands.conftest import Command, command
from tests.commands.small import vit
from tests.streaming.folders import random_tensors, write

__all__ = ["command"]
SIZES = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "vocab_size": 20, "num_local_experts": 3,
}  # fmt: skip


def mixtral(seed: int) -> transformers.MixtralForCausalLM:
    torch.manual_seed(seed)
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(**SIZES))


def saved(folder: Path, model: transformers.PreTrainedModel, rename: Callable[[str], str] = str) -> Path:
    """A model, whose file has other names."""
    checkpoints.save(model, folder)
    state = load_file(folder / "model.safetensors")
    save_file({rename(name): tensor for name, tensor in state.items()}, folder / "model.safetensors", {"format": "pt"})
    return folder


def opened(folder: Path) -> StoredModel:
    found = open_folder(str(folder), folder)
    assert found is not None
    return found


def without_prefix(name: str) -> str:
    return name.removeprefix("model.")


@pytest.mark.parametrize("method", ["simple", "karcher"])
def test_older_names_and_newer(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """A ViT under the names of its modules is merged with one under older names, without models, as the first is."""
    saved(tmp_path / "old", vit(0))
    new = tmp_path / "new"
    saved(new, vit(1))
    model = checkpoints.load(new)
    save_file(model.state_dict(), new / "model.safetensors", {"format": "pt"})
    names = {place: load_file(tmp_path / place / "model.safetensors").keys() for place in ("old", "new")}
    assert names["old"] != names["new"]
    expected = load_file(
        _merged(command, tmp_path / "expected", method, tmp_path / "old", saved(tmp_path / "b", vit(1)))
    )
    monkeypatch.setattr(merge_models, "run", None)  # nothing is read as a model
    found = load_file(_merged(command, tmp_path / "out", method, tmp_path / "old", new))
    assert found.keys() == names["old"]
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, expected[name])
    turned = load_file(_merged(command, tmp_path / "turned", method, new, tmp_path / "old"))
    assert turned.keys() == names["new"]
    checkpoints.load(tmp_path / "turned")


def _merged(command: Command, output: Path, method: str, *paths: Path) -> Path:
    outcome = command("merge", *paths, "--method", method, "--output", output)
    assert (outcome.code, outcome.err) == (0, "")
    return output / "model.safetensors"


def test_experts_without_a_prefix(tmp_path: Path) -> None:
    """Each expert's tensor is that of the other model, with or without the prefix of the body."""
    first = opened(saved(tmp_path / "a", mixtral(0)))
    other = opened(saved(tmp_path / "b", mixtral(1), without_prefix))
    assert first.tensors.keys() != other.tensors.keys()
    same, renamed = under_one_naming([first, other])
    assert same is first
    assert list(renamed.tensors) == list(first.tensors)
    for name, tensor in renamed.tensors.items():
        assert tensor == other.tensors[without_prefix(name)]


def test_what_stays_as_it_is(tmp_path: Path) -> None:
    """Experts stacked in one file alone, a tensor too many, and a class that nobody knows."""
    first = opened(saved(tmp_path / "a", mixtral(0)))
    stacked = saved(tmp_path / "stacked", mixtral(1))
    save_file(_state(mixtral(1)), stacked / "model.safetensors", {"format": "pt"})
    assert under_one_naming([first, other := opened(stacked)]) == [first, other]
    more = saved(tmp_path / "more", mixtral(1))
    save_file(load_file(more / "model.safetensors") | {"more": torch.ones(2)}, more / "model.safetensors")
    assert under_one_naming([first, other := opened(more)]) == [first, other]
    nobodys = [write(tmp_path / "x", random_tensors(0)), write(tmp_path / "y", {"w": torch.ones(2)})]
    assert under_one_naming(nobodys) == nobodys


def test_names_stay_where_tables_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are parts of transformers that it changes."""
    first = opened(saved(tmp_path / "a", mixtral(0)))
    other = opened(saved(tmp_path / "b", mixtral(1), without_prefix))
    monkeypatch.setattr(weightless, "groups_of", lambda *_: None)
    assert under_one_naming([first, other]) == [first, other]


def _state(model: transformers.PreTrainedModel) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}
