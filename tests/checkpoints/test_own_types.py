"""Checkpoints whose tensors have several types keep each in its own, and no number is rounded on the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from fusionlab import checkpoints
from fusionlab.checkpoints.conversions import placed_groups
from fusionlab.dtypes import types_of
from fusionlab.forward import logits
from fusionlab.models import untie
from tests.checkpoints.small_models import pixels, timm_vit
from tests.checkpoints.test_conversions import CASES

HALF, FULL = torch.bfloat16, torch.float32
BIAS = "model.layers.1.mlp.gate.e_score_correction_bias"


def in_several(model: nn.Module, is_full: Callable[[str], bool]) -> nn.Module:
    """A model in bfloat16, with numbers that it cannot hold wherever it is told so."""
    generator = torch.Generator().manual_seed(0)
    for name, tensor in model.state_dict(keep_vars=True).items():
        if is_full(name):
            tensor.data = 1 + torch.randn(tensor.shape, generator=generator) / 9
        elif tensor.is_floating_point():
            tensor.data = tensor.data.to(HALF)
    return model


def of_class(name: str, is_full: Callable[[str], bool], **fields: Any) -> Any:
    cls = getattr(transformers, name)
    torch.manual_seed(0)
    return in_several(cls(cls.config_class(**CASES[name], **fields)).eval(), is_full)


def is_norm(name: str) -> bool:
    return "norm" in name


def stored(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def rewritten(folder: Path, **tensors: Tensor) -> dict[str, Tensor]:
    """Change tensors of a folder's file; all that it has then."""
    state = stored(folder) | tensors
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    return state


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert tensor.dtype == second[name].dtype, name
        assert torch.equal(tensor, second[name]), name


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("form", ["folder", "pickle", "file.ckpt"])
def test_norms_in_float32(tmp_path: Path, tied: bool, form: str) -> None:
    """Read and written again from every form, they are what they were, and the config names the type of the rest."""
    model = of_class("LlamaForCausalLM", is_norm, tie_word_embeddings=tied)
    model.save_pretrained(tmp_path / "a")
    if form == "pickle":
        torch.save(stored(tmp_path / "a"), tmp_path / "a" / "pytorch_model.bin")
        (tmp_path / "a" / "model.safetensors").rename(tmp_path / "model.safetensors")
    elif form == "file.ckpt":
        described = checkpoints.describe(model)
        torch.save({"state_dict": model.state_dict(), "fusionlab": described}, tmp_path / form)
    read = checkpoints.read(tmp_path / (form if form == "file.ckpt" else "a"))
    same(dict(read.model.state_dict()), dict(model.state_dict()))
    assert read.dtypes == types_of(model)
    checkpoints.save(read.model, tmp_path / "b")
    same(stored(tmp_path / "b"), stored(tmp_path if form == "pickle" else tmp_path / "a"))
    read.model.model.embed_tokens.weight.data = read.model.model.embed_tokens.weight.float()
    checkpoints.save(read.model, tmp_path / "c")
    assert json.loads((tmp_path / "c" / "config.json").read_text())["dtype"] == "bfloat16"


def test_a_routers_bias(tmp_path: Path) -> None:
    """It keeps its numbers; a gate that transformers keeps in float32 has the numbers that it was stored with."""
    of_class("DeepseekV3ForCausalLM", lambda name: name == BIAS or is_norm(name)).save_pretrained(tmp_path / "a")
    before = stored(tmp_path / "a")
    assert before[BIAS].dtype == FULL
    checkpoints.save(checkpoints.load(tmp_path / "a"), tmp_path / "b")
    found = stored(tmp_path / "b")
    gate = "model.layers.1.mlp.gate.weight"
    assert found[gate].dtype == FULL
    same({**found, gate: found[gate].to(HALF)}, before)


def test_one_of_several_experts(tmp_path: Path) -> None:
    """What is made of tensors of two types is in the wider one, without rounding."""
    of_class("MixtralForCausalLM", lambda _: False).save_pretrained(tmp_path / "a")
    name = next(name for name in sorted(stored(tmp_path / "a")) if ".experts.1." in name)
    expert = torch.randn(stored(tmp_path / "a")[name].shape)
    before = rewritten(tmp_path / "a", **{name: expert})
    model = checkpoints.load(tmp_path / "a")
    checkpoints.save(model, tmp_path / "b")
    found = stored(tmp_path / "b")
    assert {tensor.dtype for key, tensor in found.items() if ".experts." not in key} == {HALF}
    for key, tensor in before.items():
        assert torch.equal(tensor.double(), found[key].double()), key
    assert found[name].dtype == FULL


def test_a_few_in_bfloat16(tmp_path: Path) -> None:
    """Where most is float32, what is narrower stays so; what the class does not know is passed over."""
    of_class("LlamaForCausalLM", lambda name: not is_norm(name)).save_pretrained(tmp_path / "a")
    before = stored(tmp_path / "a")
    rewritten(tmp_path / "a", **{"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2, dtype=torch.float16)})
    checkpoints.save(checkpoints.load(tmp_path / "a"), tmp_path / "b")
    same(stored(tmp_path / "b"), before)


def test_adapters_heads_and_bodies(tmp_path: Path) -> None:
    """A body that is read under another head, in the types that it is stored in or in the one that is asked for."""
    model = of_class("LlamaForCausalLM", is_norm)
    model.save_pretrained(tmp_path / "a")
    auto = transformers.AutoModelForSequenceClassification
    found, fresh = checkpoints.load_with_head(tmp_path / "a", auto, None)
    for name, tensor in model.state_dict().items():
        if name != "lm_head.weight":
            same({name: tensor}, {name: found.state_dict()[name]})
    assert fresh == ["score.weight"]
    wide, _ = checkpoints.load_with_head(tmp_path / "a", auto)
    assert set(types_of(wide).values()) == {FULL}


@pytest.mark.parametrize("rest", [HALF, FULL])
def test_a_table_that_is_stored_twice(tmp_path: Path, rest: torch.dtype) -> None:
    """Of embeddings that are tied and stored under both names, what the other is tied to has the numbers."""
    table, head = "model.embed_tokens.weight", "lm_head.weight"
    model = of_class("LlamaForCausalLM", lambda name: name in (table, head) or rest == FULL, tie_word_embeddings=True)
    model.save_pretrained(tmp_path / "a")
    whole = stored(tmp_path / "a")[table]
    assert whole.dtype == FULL
    if rest == FULL:  # read in float32 the two must be equal, or transformers does not tie them
        whole = whole.to(HALF).float()
    rewritten(tmp_path / "a", **{table: whole, head: whole.to(HALF)})
    found = checkpoints.load(tmp_path / "a")
    assert found.lm_head.weight is found.model.embed_tokens.weight
    same({table: found.state_dict()[table]}, {table: whole})


def test_tables_that_fail_leave_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors that a class has under their own name are found without transformers' tables."""
    model = of_class("LlamaForCausalLM", is_norm)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    monkeypatch.setattr("fusionlab.checkpoints.conversions._groups", lambda *_, **__: 1 / 0)
    found = placed_groups(model, shapes | {"more": (3,), "lm_head.weight": (3, 3)})
    assert [group.stored for group in found] == [group.made for group in found]
    assert {group.made[0] for group in found} == shapes.keys() - {"lm_head.weight"}


def test_timm(tmp_path: Path) -> None:
    """The same of a folder of timm, and it runs."""
    model = in_several(timm_vit(), is_norm)
    checkpoints.save(model, tmp_path / "a")
    found = checkpoints.load(tmp_path / "a")
    same(dict(found.state_dict()), dict(model.state_dict()))
    expected = logits(checkpoints.load(tmp_path / "a").float(), {"x": pixels()})
    assert (logits(found, {"x": pixels()}).float() - expected).norm() < 0.05 * expected.norm()


def test_untied(tmp_path: Path) -> None:
    """A model of several types keeps them when its embeddings are untied, and what its class computes by itself."""
    model = of_class("LlamaForCausalLM", is_norm, tie_word_embeddings=True)
    found = untie(model)
    same(dict(found.state_dict()), dict(model.state_dict()))
    torch.testing.assert_close(found.model.rotary_emb.inv_freq, model.model.rotary_emb.inv_freq)
