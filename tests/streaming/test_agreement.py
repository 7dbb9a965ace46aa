"""Which folders are merged tensor by tensor, which as models, and which are refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.merging import find_method
from fusionlab.streaming import may_stream, open_folder
from tests.streaming.folders import random_tensors, write

SIMPLE = find_method("simple")


def pair(
    folder: Path, change: dict[str, Tensor | None] | None = None, first: dict[str, Any] | None = None, **second: Any
) -> list[Any]:
    """Two folders of which the second has other tensors (none for None), and other entries in its config."""
    tensors = random_tensors(1)
    changed = {name: tensor for name, tensor in (tensors | (change or {})).items() if tensor is not None}
    config = first or {}
    return [write(folder / "one", tensors, **config), write(folder / "two", changed, **config | second)]


def test_an_unknown_class(tmp_path: Path) -> None:
    """Names, shapes and configs are all that there is; training, names and tokens in configs may differ."""
    entries = {"dropout": 0.1, "torch_dtype": "bfloat16", "eos_token_id": [2, 3], "id2label": {"0": "a"}}
    assert may_stream(pair(tmp_path, **entries), None, find_method("slerp"))


@pytest.mark.parametrize(
    ("change", "config", "sentence"),
    [
        ({"b.bias": torch.zeros(8)}, {}, "the parameter 'b.bias' has shape 8 in two; expected shape 7 as in one"),
        ({"b.bias": None}, {}, "one has the parameter 'b.bias', which two lacks; expected one architecture"),
        ({"more": torch.zeros(2)}, {}, "two has the parameter 'more', which one lacks; expected one architecture"),
        ({"scale": torch.tensor(3)}, {}, "two: parameter scale holds integers, but floating-point numbers"),
        ({"b.bias": torch.arange(7)}, {}, "two: parameter b.bias holds integers, but floating-point numbers"),
        ({}, {"hidden_act": "gelu"}, "config.json of two and one differ in 'hidden_act'; expected equal ones, as"),
        ({}, {"vision": {"depth": 3}}, r"differ in 'vision.depth'"),
        ({}, {"id2label": {"0": "b", "1": "a"}}, r"two and one have .* in another order \(b, a and a, b\)"),
    ],
)
def test_what_differs_is_named(tmp_path: Path, change: Any, config: Any, sentence: str) -> None:
    """One sentence with the tensor or the entry, of a base as of a model."""
    one, two = pair(tmp_path, change, {"vision": {"depth": 2}, "id2label": {"0": "a", "1": "b"}}, **config)
    with pytest.raises(InputError, match=sentence):
        may_stream([one, two], None, SIMPLE)
    with pytest.raises(InputError, match=sentence):
        may_stream([one, one], two, SIMPLE)


def test_of_a_known_class_models_decide(tmp_path: Path) -> None:
    """Other names, or heads, may be the same model for transformers, or are refused in its words."""
    known = {"model_type": "llama", "num_attention_heads": 2}
    assert not may_stream(pair(tmp_path / "names", {"b.bias": None}, known), None, SIMPLE)
    assert not may_stream(pair(tmp_path / "heads", None, known, num_attention_heads=4), None, SIMPLE)
    assert may_stream(pair(tmp_path / "same", None, known), None, SIMPLE)


def test_what_is_said_and_what_is_left_at_its_default_are_equal(tmp_path: Path) -> None:
    """As transformers 5 writes configs, and 4 did not; a value of its own is a difference."""
    known = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    assert may_stream(pair(tmp_path / "same", None, known, head_dim=4, mlp_bias=False), None, SIMPLE)
    assert not may_stream(pair(tmp_path / "other", None, known, hidden_act="gelu"), None, SIMPLE)
    assert not may_stream(pair(tmp_path / "unread", None, known, hidden_size="many"), None, SIMPLE)


def test_quantised_and_masks_are_left_to_models(tmp_path: Path) -> None:
    assert not may_stream(pair(tmp_path / "a", None, {"quantization_config": {"bits": 4}}), None, SIMPLE)
    mask = {"attn.mask": torch.full((2, 2), -torch.inf)}
    models = [write(tmp_path / name, random_tensors(1) | mask, model_type="llama") for name in "bc"]
    assert not may_stream(models, None, SIMPLE)


def test_parameters_that_transformers_stacks(tmp_path: Path) -> None:
    """A method that looks at a parameter as a whole must see the stack, which lacks a part here; others need not."""
    experts = {f"model.layers.0.block_sparse_moe.experts.{i}.w1.weight": torch.ones(4, 4) for i in range(2)}
    config = {
        "model_type": "mixtral", "architectures": ["MixtralModel"], "hidden_size": 4, "intermediate_size": 4,
        "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "vocab_size": 5,
        "num_local_experts": 2,
    }  # fmt: skip
    models = [write(tmp_path / name, experts, **config) for name in "ab"]
    assert may_stream(models, None, SIMPLE)
    assert not may_stream(models, None, find_method("slerp"))


def test_other_formats_are_no_folders_of_safetensors(tmp_path: Path) -> None:
    """Pickled weights, and types that nothing is merged in."""
    write(tmp_path / "a", random_tensors(1))
    (tmp_path / "a" / "model.safetensors").unlink()
    torch.save(random_tensors(1), tmp_path / "a" / "pytorch_model.bin")
    assert open_folder("a", tmp_path / "a") is None
    assert open_folder("file", tmp_path / "a" / "pytorch_model.bin") is None
    with pytest.raises(AssertionError):
        write(tmp_path / "b", {"w": torch.zeros(2, 2).to(torch.float8_e4m3fn)})
