"""A blueprint grown from a small model is the one that is written for the real model, to the letter."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers

from fusionlab.symmetry import SymmetryError
from fusionlab.symmetry.architectures import DESCRIBED
from fusionlab.symmetry.axes import Fixed
from fusionlab.symmetry.blueprint import Blueprint, Reader
from fusionlab.symmetry.infer.grow import grow
from fusionlab.symmetry.infer.shrink import Shrunk, shrink
from tests.parts import one_in
from tests.symmetry.written import WRITTEN, written

# A class of every described type, at the size that its config has by default, and what of the config is changed.
CLASSES: dict[str, tuple[str, dict[str, Any]]] = {
    "albert": ("AlbertForMaskedLM", {}),
    "bart": ("BartForConditionalGeneration", {}),
    "beit": ("BeitForImageClassification", {"use_relative_position_bias": True}),
    "bert": ("BertForSequenceClassification", {}),
    "camembert": ("CamembertForMaskedLM", {"tie_word_embeddings": False}),
    "clip": ("CLIPModel", {}),
    "clip_text_model": ("CLIPTextModelWithProjection", {}),
    "clip_vision_model": ("CLIPVisionModel", {}),
    "deberta": ("DebertaForMaskedLM", {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    "deberta-v2": (
        "DebertaV2ForSequenceClassification",
        {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "share_att_key": True, "conv_kernel_size": 3},
    ),
    "deit": ("DeiTForMaskedImageModeling", {}),
    "dinov2": ("Dinov2ForImageClassification", {"use_swiglu_ffn": True}),
    "dinov2_with_registers": ("Dinov2WithRegistersForImageClassification", {}),
    "distilbert": ("DistilBertForSequenceClassification", {"activation": "relu"}),
    "electra": ("ElectraForPreTraining", {}),
    "gemma2": ("Gemma2ForCausalLM", {}),
    "gpt2": ("GPT2LMHeadModel", {"tie_word_embeddings": False}),
    "gpt_neox": ("GPTNeoXForCausalLM", {}),
    "gptj": ("GPTJForCausalLM", {}),
    # The sizes and tokens of Llama 3 8B.
    "llama": (
        "LlamaForCausalLM",
        {
            "num_key_value_heads": 8,
            "intermediate_size": 14336,
            "vocab_size": 128256,
            "bos_token_id": 128000,
            "eos_token_id": [128001, 128008],
        },
    ),
    "mistral": ("MistralForCausalLM", {}),
    "modernbert": ("ModernBertForMaskedLM", {}),
    "mpnet": ("MPNetForMaskedLM", {}),
    "olmo2": ("Olmo2ForCausalLM", {}),
    "opt": ("OPTModel", {"word_embed_proj_dim": 512}),
    "phi3": ("Phi3ForCausalLM", {"partial_rotary_factor": 0.75}),
    "qwen2": ("Qwen2ForTokenClassification", {"num_key_value_heads": 4}),
    "qwen3": ("Qwen3ForCausalLM", {"num_key_value_heads": 8, "head_dim": 256}),
    "roberta": ("RobertaForSequenceClassification", {}),
    "siglip": ("SiglipModel", {}),
    "siglip_text_model": ("SiglipTextModel", {}),
    "siglip_vision_model": ("SiglipVisionModel", {}),
    "swin": ("SwinForMaskedImageModeling", {}),
    "t5": ("T5ForConditionalGeneration", {"feed_forward_proj": "gated-gelu", "d_kv": 128, "num_decoder_layers": 9}),
    "vit": ("ViTForMaskedImageModeling", {}),
    "whisper": ("WhisperForConditionalGeneration", {}),
    "xlm-roberta": ("XLMRobertaForTokenClassification", {}),
}
# Layers that share parameters, one key for all queries, layers without attention of their own.
MORE = [
    ("AlbertModel", {"num_hidden_groups": 3, "inner_group_num": 2}),
    ("LlamaForCausalLM", {"num_key_value_heads": 1}),
    ("BartForCausalLM", {}),
    ("DistilBertModel", {}),
]


def test_every_described_type_of_transformers_has_a_case():
    described = {*WRITTEN.names, *DESCRIBED.names}
    assert set(CLASSES) == {name for name in described if not name.startswith(("timm.", "torch."))}


def made_config(class_name: str, changes: dict[str, Any]) -> Any:
    return getattr(transformers, class_name).config_class(**changes)


def shapes_of(config: Any, class_name: str) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):
        model = getattr(transformers, class_name)(config)
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize(("class_name", "changes"), one_in(2, [*CLASSES.values(), *MORE]))
def test_what_is_grown_is_what_is_written(class_name, changes):
    config = made_config(class_name, changes)
    shrunk = shrink(config, class_name)
    small = written(shrunk.build())
    described = WRITTEN if config.model_type in WRITTEN else DESCRIBED
    expected = described.blueprint_from_config(config, class_name)
    grown = grow(small, shrunk, shapes_of(config, class_name))
    assert grown == expected
    assert grown.fingerprint == expected.fingerprint
    # Spaces are solved in the order of their declaration.
    assert list(grown.spaces) == list(expected.spaces)
    assert list(grown.parameters) == list(expected.parameters)
    # It is the real model's, no copy of the small one's.
    assert small.fingerprint != expected.fingerprint


@pytest.fixture(scope="module")
def bert() -> tuple[Blueprint, Shrunk, dict[str, tuple[int, ...]]]:
    config = transformers.BertConfig()
    shrunk = shrink(config, "BertModel")
    return written(shrunk.build()), shrunk, shapes_of(config, "BertModel")


def test_a_parameter_without_a_stand_in_is_refused(bert):
    small, shrunk, shapes = bert
    with pytest.raises(SymmetryError, match=r"no axes that could be those of 'adapter\.weight'"):
        grow(small, shrunk, {**shapes, "adapter.weight": (3, 3)})


def test_shapes_that_contradict_each_other_are_refused(bert):
    small, shrunk, shapes = bert
    name = "encoder.layer.7.intermediate.dense.bias"
    with pytest.raises(SymmetryError, match=r"encoder\.layer\.7\.(intermediate|output)"):
        grow(small, shrunk, {**shapes, name: (3000,)})


def test_sizes_that_nothing_says_are_refused(bert):
    """Twelve heads of 64 or six of 128: only the config knows."""
    small, shrunk, shapes = bert
    hints = {name: sizes for name, sizes in shrunk.hints.items() if "head" not in name}
    with pytest.raises(SymmetryError, match=r"neither shapes nor config say the size of 'layers\.0\.heads'"):
        grow(small, replace(shrunk, hints=hints), shapes)


def test_two_real_values_for_one_small_one_are_refused(bert):
    small, shrunk, shapes = bert
    hints = {**shrunk.hints, "num_other_heads": (shrunk.hints["num_attention_heads"][0], 6)}
    del hints["width of a head"]
    with pytest.raises(SymmetryError, match=r"neither shapes nor config say the size of 'layers\.0\.heads'"):
        grow(small, replace(shrunk, hints=hints), shapes)


def test_a_hint_that_no_shape_admits_is_no_choice(bert):
    """768 features are not 5 heads."""
    small, shrunk, shapes = bert
    hints = {**shrunk.hints, "num_other_heads": (shrunk.hints["num_attention_heads"][0], 5)}
    assert grow(small, replace(shrunk, hints=hints), shapes) == grow(small, shrunk, shapes)


def test_layers_of_one_kind_with_different_axes_are_refused(bert):
    """What the second small layer says holds for ten real ones, so that it must hold for the first as well."""
    small, shrunk, shapes = bert
    name = "encoder.layer.1.output.dense.weight"
    spoilt = replace(small, parameters={**small.parameters, name: (Fixed(), Fixed())})
    with pytest.raises(SymmetryError, match=r"encoder\.layer\.1\.output.* are of layers of one kind, but their axes"):
        grow(spoilt, shrunk, shapes)


def test_a_norm_that_another_layer_reads_is_refused():
    """Which of the real layers would read it is not said by two small ones."""
    config = transformers.LlamaConfig()
    shrunk = shrink(config, "LlamaForCausalLM")
    small = written(shrunk.build())
    other = Reader("model.layers.1.self_attn.q_proj.weight", 1)
    norms = tuple(replace(n, readers=(other,)) if ".0.input_layernorm" in n.weight else n for n in small.norms)
    with pytest.raises(SymmetryError, match=r"entries of model\.layers read each other's norms"):
        grow(replace(small, norms=norms), shrunk, shapes_of(config, "LlamaForCausalLM"))


def test_half_a_plane_is_refused():
    """Heads three wide, of which rotary positions would turn a plane and a half."""
    config = transformers.LlamaConfig(num_hidden_layers=1, num_attention_heads=4, head_dim=3)
    shrunk = shrink(config, "LlamaForCausalLM")
    small = written(shrunk.build())
    with pytest.raises(SymmetryError, match=r"would have 3 coordinates, of which 2 go together"):
        grow(small, shrunk, shapes_of(config, "LlamaForCausalLM"))


def test_a_text_is_no_longer_than_the_model_takes():
    """A small model has places for more words than a real one with few."""
    config = transformers.GPT2Config(n_positions=7)
    shrunk = shrink(config, "GPT2LMHeadModel")
    assert shrunk.inputs[0].shape > shrunk.real_inputs[0].shape == (7,)
    grown = grow(written(shrunk.build()), shrunk, shapes_of(config, "GPT2LMHeadModel"))
    assert grown.inputs[0].shape == (7,)
