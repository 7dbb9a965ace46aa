"""The difference of two models as an adapter: the best of its rank, exact where that is enough, as PEFT reads it."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertForMaskedLM,
    BertForSequenceClassification,
    EsmConfig,
    EsmForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LevitConfig,
    LevitForImageClassification,
    LlamaForCausalLM,
    PreTrainedModel,
    RobertaConfig,
    RobertaForMaskedLM,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)

from fusionlab import checkpoints
from fusionlab.checkpoints.adapted import HEADS, base_state, task_of
from fusionlab.checkpoints.extraction import Extracted, extract, write_adapter
from fusionlab.checkpoints.truncation import truncated
from tests.checkpoints.test_adapters import BERT, LLAMA
from tests.parts import one_in
from tests.symmetry.models import generator, laws

GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 4, "vocab_size": 30, "n_positions": 16}
VIT = ViTConfig(
    hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, image_size=8, patch_size=4,
    num_labels=3,
)  # fmt: skip
SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
ROBERTA = RobertaConfig(**{name: getattr(BERT, name) for name in (*SIZES, "vocab_size", "max_position_embeddings")})
ESM = EsmConfig(**{name: getattr(BERT, name) for name in (*SIZES, "vocab_size")}, pad_token_id=0, mask_token_id=1)
T5 = T5Config(vocab_size=30, d_model=16, d_kv=4, d_ff=24, num_layers=2, num_heads=4, dropout_rate=0)
BART = BartConfig(
    vocab_size=30, d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=24, decoder_ffn_dim=24,
    encoder_attention_heads=2, decoder_attention_heads=2, max_position_embeddings=20, scale_embedding=True,
)  # fmt: skip
MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": lambda: LlamaForCausalLM(LLAMA),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**GPT2, tie_word_embeddings=False)),
    "gpt2 (tied)": lambda: GPT2LMHeadModel(GPT2Config(**GPT2)),
    "bert": lambda: BertForSequenceClassification(BERT),
    "bert (masked)": lambda: BertForMaskedLM(BERT),
    "roberta (masked)": lambda: RobertaForMaskedLM(ROBERTA),
    "esm (masked)": lambda: EsmForMaskedLM(ESM),
    "t5": lambda: T5ForConditionalGeneration(T5),
    "bart": lambda: BartForConditionalGeneration(BART),
    "vit": lambda: ViTForImageClassification(VIT),
}
FULL = 64


@laws
@given(rows=st.integers(1, 7), columns=st.integers(1, 7), rank=st.integers(1, 8), seed=st.integers(0, 99))
def test_no_product_of_the_rank_is_closer(rows: int, columns: int, rank: int, seed: int) -> None:
    """What is left has the smaller singular values; no other pair of factors leaves less."""
    draw = generator(seed)
    difference = torch.randn(rows, columns, generator=draw, dtype=torch.float64)
    down, up, share = truncated(difference, rank)
    kept = min(rank, rows, columns)
    assert (down.shape, up.shape) == ((kept, columns), (rows, kept))
    left = difference - up.double() @ down.double()
    singular = torch.linalg.svdvals(difference)
    torch.testing.assert_close(left.norm(), singular[kept:].norm(), rtol=1e-5, atol=1e-5)
    assert float(left.norm() / difference.norm()) ** 2 == pytest.approx(1 - share**2, abs=1e-5)
    other = (torch.randn(size, generator=draw, dtype=torch.float64) for size in (up.shape, down.shape))
    near = up + 1e-3 * next(other), down + 1e-3 * next(other)
    assert float((difference - near[0] @ near[1]).norm()) >= float(left.norm()) - 1e-6


def pair(name: str, folder: Path) -> tuple[PreTrainedModel, PreTrainedModel]:
    """A base model on the disk, and a model that differs from it in every parameter."""
    torch.manual_seed(0)
    base = MODELS[name]().eval()
    checkpoints.save(base, folder / "base")
    model = copy.deepcopy(base)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape), alpha=0.1)
    return base, model


def written(model: PreTrainedModel, folder: Path, rank: int) -> Extracted:
    found = extract(model, base_state(model, folder / "base"), rank, HEADS.get(task_of(model) or "", ()))
    (folder / "adapter").mkdir()
    write_adapter(found, folder / "adapter", str(folder / "base"), task_of(model))
    return found


def assert_near(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float = 1e-5) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        difference = (found[name] - tensor).double().norm()
        assert float(difference) <= tolerance * float(tensor.double().norm()), name


@pytest.mark.parametrize("name", one_in(2, MODELS))
def test_a_full_rank_gives_the_model_back(tmp_path: Path, name: str) -> None:
    """Read by fusionlab; norms, biases, class tokens and tied embeddings included."""
    _, model = pair(name, tmp_path)
    found = written(model, tmp_path, FULL)
    assert min(found.captured.values()) == pytest.approx(1, abs=1e-6)
    assert_near(checkpoints.load(tmp_path / "adapter").state_dict(), model.state_dict())


@pytest.mark.parametrize("name", one_in(2, MODELS))
def test_a_full_rank_gives_a_model_of_a_narrow_type_back(tmp_path: Path, name: str) -> None:
    """A difference of two such numbers has more digits than either, and is not rounded to theirs."""
    torch.manual_seed(0)
    base, model = MODELS[name]().eval().to(torch.bfloat16), MODELS[name]().eval().to(torch.bfloat16)
    checkpoints.save(base, tmp_path / "base")
    written(model, tmp_path, FULL)
    found = checkpoints.load(tmp_path / "adapter").state_dict()
    for key, tensor in model.state_dict().items():
        same = torch.isclose(found[key].double(), tensor.double(), rtol=1e-3, atol=1e-6)
        assert float((~same).double().mean()) < 0.01, key


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_peft_computes_with_it_what_the_model_computes(tmp_path: Path, name: str) -> None:
    """Loaded onto the base model, as its users load an adapter; layers of fewer dimensions have a lower rank."""
    base, model = pair(name, tmp_path)
    written(model, tmp_path, FULL)
    adapted: Any = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    inputs: dict[str, Any] = {"input_ids": torch.arange(1, 9)[None]}
    if name == "vit":
        inputs = {"pixel_values": torch.randn(1, 3, 8, 8)}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.arange(2, 6)[None]
    torch.testing.assert_close(adapted(**inputs).logits, model(**inputs).logits, rtol=1e-4, atol=1e-5)


def test_a_low_rank_captures_what_is_said(tmp_path: Path) -> None:
    """Of every layer, so much of the difference's norm; more at a higher rank."""
    base, model = pair("llama", tmp_path)
    found = written(model, tmp_path, 3)
    state, before = checkpoints.load(tmp_path / "adapter").state_dict(), base.state_dict()
    for layer, share in found.captured.items():
        whole = model.state_dict()[f"{layer}.weight"] - before[f"{layer}.weight"]
        change = state[f"{layer}.weight"] - before[f"{layer}.weight"]
        assert float(change.norm() / whole.norm()) == pytest.approx(share, rel=1e-4)
        assert 0.3 < share < 0.99
        assert share < extract(model, before, 4).captured[layer]
    norms = [f"model.layers.{i}.{name}_layernorm" for i in range(2) for name in ("input", "post_attention")]
    assert found.modules == (*norms, "model.norm")


@pytest.mark.parametrize("name", ["gpt2 (tied)", "bert (masked)", "roberta (masked)", "esm (masked)", "t5"])
def test_a_tied_model_of_a_low_rank_stays_tied(tmp_path: Path, name: str) -> None:
    """Embeddings that the head reads come back as one parameter, changed as far as the rank goes."""
    base, model = pair(name, tmp_path)
    written(model, tmp_path, 2)
    read = checkpoints.load(tmp_path / "adapter")
    assert read.get_input_embeddings().weight is read.get_output_embeddings().weight
    before, whole, found = (one.get_input_embeddings().weight.detach().double() for one in (base, model, read))
    up, lengths, down = torch.linalg.svd(whole - before)
    torch.testing.assert_close(found - before, up[:, :2] * lengths[:2] @ down[:2], rtol=1e-4, atol=1e-5)


def test_counts_of_batches_come_back(tmp_path: Path) -> None:
    """LeViT's batch norms are saved whole, with what they count."""
    sizes: dict[str, Any] = {"hidden_sizes": [8, 8], "num_attention_heads": [2, 2], "depths": [1, 1], "key_dim": [4, 4]}
    sizes |= {"mlp_ratio": [1, 1], "attention_ratio": [1, 1], "down_ops": [["Subsample", 4, 2, 1, 1, 1], [""]]}
    model = LevitForImageClassification(LevitConfig(image_size=32, num_labels=3, **sizes)).eval()
    checkpoints.save(model, tmp_path / "base")
    with torch.no_grad():
        for norm in (module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)):
            norm.weight.add_(0.1)
            norm.num_batches_tracked.add_(3)
    written(model, tmp_path, 2)
    assert_near(checkpoints.load(tmp_path / "adapter").state_dict(), model.state_dict())


def test_an_adapter_comes_back_with_its_own_rank(tmp_path: Path) -> None:
    """Where a difference has a low rank, no more is needed for all of it."""
    base, _ = pair("llama", tmp_path)
    model = copy.deepcopy(base)
    with torch.no_grad():
        weight = model.model.layers[1].self_attn.v_proj.weight
        weight += torch.randn(weight.shape[0], 2) @ torch.randn(2, weight.shape[1])
    found = written(model, tmp_path, 2)
    assert list(found.captured) == ["model.layers.1.self_attn.v_proj"]
    assert found.captured["model.layers.1.self_attn.v_proj"] == pytest.approx(1, abs=1e-6)
    assert not found.saved
    assert_near(checkpoints.load(tmp_path / "adapter").state_dict(), model.state_dict())


def test_a_head_that_the_base_model_has_not_is_saved_whole(tmp_path: Path) -> None:
    torch.manual_seed(0)
    checkpoints.save(BertForMaskedLM(BERT), tmp_path / "base")
    model = BertForSequenceClassification.from_pretrained(tmp_path / "base", num_labels=5)
    with torch.no_grad():
        model.bert.encoder.layer[0].attention.self.query.weight += 0.1
    found = written(model, tmp_path, 4)
    assert set(found.modules) == {"bert.pooler.dense", "classifier"}
    assert_near(checkpoints.load(tmp_path / "adapter").state_dict(), model.state_dict())
