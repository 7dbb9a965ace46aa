"""What models share: a small one of their structure, by which all of them are described."""

import os

import pytest
import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

from fusionlab.symmetry import Alignment, Blueprint, SymmetryError, blueprint
from fusionlab.symmetry.infer import models
from tests.symmetry.fields import every_field
from tests.symmetry.infer.test_kept import bloom


def test_models_of_two_sizes_have_one_small_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is traced once, and the larger one gets what it gets alone; another option makes another small model."""
    monkeypatch.setenv("FUSIONLAB_CACHE", os.devnull)
    monkeypatch.setattr(models, "KNOWN", {})
    traced: list[str] = []
    found = models.infer

    def counted(model: nn.Module, *arguments: object, **more: object) -> Blueprint:
        traced.append(type(model).__name__)
        return found(model, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(models, "infer", counted)
    models.inferred(bloom())
    larger = models.inferred(bloom(hidden_size=60, n_head=5))
    assert traced == ["BloomForCausalLM"]
    models.inferred(bloom(tie_word_embeddings=False))
    assert traced == ["BloomForCausalLM"] * 2
    monkeypatch.setattr(models, "KNOWN", {})
    alone = models.inferred(bloom(hidden_size=60, n_head=5))
    assert len(traced) == 3
    assert every_field(alone) == every_field(larger)


SIZES = {"vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 20}


def bert(act: str, replaced: bool = False) -> BertForSequenceClassification:
    """A BERT; with its activations replaced by others than its config says."""
    model = BertForSequenceClassification(BertConfig(**SIZES, max_position_embeddings=64, hidden_act=act))
    for layer in model.bert.encoder.layer if replaced else []:
        layer.intermediate.intermediate_act_fn = nn.GELU()
    return model


@pytest.mark.parametrize("order", [(False, True), (True, False)])
def test_what_a_module_was_replaced_by_counts(order: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """A ReLU's units may be scaled and a GELU's may not, whichever model comes first and whatever the config says."""
    monkeypatch.setenv("FUSIONLAB_CACHE", os.devnull)
    monkeypatch.setattr(models, "KNOWN", {})
    for replaced in order:
        scales = [name for name in blueprint(bert("relu", replaced)).spaces if name.endswith("ffn.scale")]
        assert len(scales) == (0 if replaced else 2)


def test_a_model_too_large_to_trace_whose_modules_were_replaced_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSIONLAB_CACHE", os.devnull)
    monkeypatch.setattr(models, "KNOWN", {})
    monkeypatch.setattr(models, "MOST_TRIED", 0)
    monkeypatch.setattr(models, "MOST_PARAMETERS", 0)
    with pytest.raises(SymmetryError, match="intermediate_act_fn is a GELU, and by the config a ReLU"):
        blueprint(bert("relu", replaced=True))
    assert any(name.endswith("ffn.scale") for name in blueprint(bert("relu")).spaces)


def test_an_example_stands_for_models_of_the_same_modules_alone() -> None:
    """One of another activation has other symmetries, and so has one whose slope is another."""
    shown = nn.Sequential(nn.Linear(3, 7), nn.LeakyReLU(0.1), nn.Linear(7, 2))
    blueprint(shown, torch.randn(4, 3))
    assert blueprint(nn.Sequential(nn.Linear(3, 7), nn.LeakyReLU(0.1), nn.Linear(7, 2))) is blueprint(shown)
    for other in (nn.GELU(), nn.LeakyReLU(0.2)):
        with pytest.raises(SymmetryError, match=r"expected fusionlab.blueprint"):
            blueprint(nn.Sequential(nn.Linear(3, 7), other, nn.Linear(7, 2)))


def test_a_layer_that_stands_twice() -> None:
    """Two entries of a list that are one module have one set of parameters, and symmetries of both places."""
    model = LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2)).double().eval()
    model.model.layers[1] = model.model.layers[0]
    found = blueprint(model)
    tokens = torch.arange(12)[None]
    twin = Alignment.random(found, torch.Generator().manual_seed(0)).apply(model)
    with torch.no_grad():
        torch.testing.assert_close(twin(tokens).logits, model(tokens).logits)
    assert not torch.equal(twin.model.layers[0].mlp.up_proj.weight, model.model.layers[0].mlp.up_proj.weight)


def test_a_decoder_of_gpt2_reads_an_encoder() -> None:
    """Its config has no field that says it is a decoder, but one for cross-attention."""
    sizes = {"vocab_size": 40, "n_positions": 32, "n_embd": 24, "n_layer": 1, "n_head": 4}
    found = blueprint(GPT2LMHeadModel(GPT2Config(**sizes, add_cross_attention=True)))
    assert [one.name for one in found.inputs] == ["input_ids", "encoder_hidden_states"]
    assert any("crossattention" in name for space in found.spaces for name in found.touching([space]))
