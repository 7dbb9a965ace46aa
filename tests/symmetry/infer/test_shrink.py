"""A shrunk config makes a small model of the same structure, whatever the type."""

from typing import Any

import pytest
import timm
import torch
import transformers
from torch import nn

from fusionlab.symmetry.float64 import InFloat64
from fusionlab.symmetry.infer.meanings import Meaning, meaning
from fusionlab.symmetry.infer.shrink import NotShrunkError, Shrunk, shrink
from fusionlab.symmetry.infer.small_sizes import SmallSizes

# Types that nothing is written for, at the sizes that their configs have by default.
UNSEEN = [
    "CohereForCausalLM",
    "ConvNextForImageClassification",
    "DINOv3ViTModel",
    "DeepseekV3ForCausalLM",
    "FalconForCausalLM",
    "GPTNeoForCausalLM",
    "Gemma3ForCausalLM",
    "GptOssForCausalLM",
    "MambaForCausalLM",
    "MixtralForCausalLM",
    "PhiForCausalLM",
    "Qwen3MoeForCausalLM",
    "Qwen3NextForCausalLM",
    "ResNetForImageClassification",
    "SegformerForImageClassification",
    "Wav2Vec2Model",
]
# Fields of these meanings are lengths of spaces.
LENGTHS = (Meaning.HEADS, Meaning.HEAD_WIDTH, Meaning.RANK, Meaning.INNER, Meaning.EXPERTS, Meaning.WIDTH)


def default(class_name: str, **changes: Any) -> Any:
    return getattr(transformers, class_name).config_class(**changes)


def on_meta(class_name: str, config: Any) -> nn.Module:
    with torch.device("meta"):
        model: nn.Module = getattr(transformers, class_name)(config)
    return model


@pytest.fixture(scope="module", params=UNSEEN)
def unseen(request) -> Shrunk:
    return shrink(default(request.param), request.param)


def test_every_parameter_of_the_real_model_has_a_stand_in(unseen):
    """Of as many dimensions, and nothing of the small model is left over."""
    real = on_meta(unseen.class_name, default(unseen.class_name)).state_dict()
    small = unseen.build().state_dict()
    assert list(unseen.layers) == list(real)
    assert set(unseen.layers.values()) == set(small)
    assert all(small[stand_in].ndim == real[name].ndim for name, stand_in in unseen.layers.items())
    assert sum(tensor.numel() for tensor in small.values()) < 1_000_000


def test_the_small_model_runs_in_float64(unseen):
    model = unseen.build().double()
    generator = torch.Generator().manual_seed(0)
    inputs = {i.name: i.random(2, generator) for i in unseen.inputs}
    assert inputs
    with torch.no_grad(), InFloat64():
        outputs = model(**inputs)
    assert outputs[0].dtype == torch.float64
    assert torch.isfinite(outputs[0]).all()


def test_small_sizes_are_distinct_and_above_two(unseen):
    """A small size says which real one it stands for."""
    of_small: dict[int, set[int]] = {}
    for name, (small, real) in unseen.hints.items():
        if meaning(name.split(".")[0]) in LENGTHS and real > 2:
            assert small > 2, name
            of_small.setdefault(small, set()).add(real)
    assert all(len(reals) == 1 for reals in of_small.values()), of_small


@pytest.mark.parametrize(
    ("class_name", "field"),
    [
        ("Gemma3ForCausalLM", "layer_types"),
        ("Qwen3NextForCausalLM", "layer_types"),
        ("GPTNeoForCausalLM", "attention_layers"),
    ],
)
def test_stand_ins_are_of_the_kind_that_the_config_lists(class_name, field):
    """The first layer stands for the first of its kind; two layers are kept of every kind."""
    config = default(class_name)
    shrunk = shrink(config, class_name)
    real, small = getattr(config, field), getattr(shrunk.config, field)
    found = {}
    for name, stand_in in shrunk.layers.items():
        numbers = [[int(word) for word in n.split(".") if word.isdigit()][:1] for n in (name, stand_in)]
        if all(numbers):
            found[numbers[0][0]] = numbers[1][0]
    assert sorted(found) == list(range(len(real)))
    assert all(real[layer] == small[stand_in] for layer, stand_in in found.items())
    assert all(small.count(kind) == 2 for kind in set(real))
    assert all(found[real.index(kind)] == small.index(kind) for kind in set(real))


def test_dense_and_sparse_layers_both_stay():
    """Three dense layers come before 58 with experts; which are which is no list but a number."""
    shrunk = shrink(default("DeepseekV3ForCausalLM"), "DeepseekV3ForCausalLM")
    model: Any = shrunk.build()
    sparse = [hasattr(layer.mlp, "experts") for layer in model.model.layers]
    assert sparse.count(False) >= 2
    assert sparse.count(True) >= 2
    for layer in range(61):
        stand_in = shrunk.layers[f"model.layers.{layer}.input_layernorm.weight"]
        assert sparse[int(stand_in.split(".")[2])] == (layer >= 3)
    c = shrunk.config
    assert c.n_routed_experts // c.n_group > 2
    assert c.num_experts_per_tok < c.topk_group * (c.n_routed_experts // c.n_group)
    assert 1 < c.topk_group < c.n_group


@pytest.mark.parametrize(("real", "small"), [((32, 32), "all"), ((32, 8), "between"), ((32, 1), "one")])
def test_grouped_queries_stay_grouped(real, small):
    heads, groups = real
    config = shrink(
        default("LlamaForCausalLM", num_attention_heads=heads, num_key_value_heads=groups), "LlamaForCausalLM"
    ).config
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    kind = "all" if groups == heads else "one" if groups == 1 else "between"
    assert kind == small
    assert heads % groups == 0
    assert small != "between" or heads // groups > 2


def test_queries_divide_by_twice_the_keys_where_heads_must_divide_by_more():
    """As in a class some of whose layers have twice as many keys."""
    fields = {"hidden_size": 4096, "num_attention_heads": 64, "num_key_value_heads": 4}
    small = {path[-1]: size for path, size in SmallSizes(fields, multiple=4).choose().items()}
    assert small["num_attention_heads"] % (2 * small["num_key_value_heads"]) == 0
    assert small["num_key_value_heads"] % 4 == 0


def test_widths_of_heads_stay_apart_or_together():
    apart = shrink(default("Qwen3ForCausalLM", head_dim=256), "Qwen3ForCausalLM").config
    together = shrink(default("Qwen3ForCausalLM", head_dim=128), "Qwen3ForCausalLM").config
    assert apart.head_dim * apart.num_attention_heads != apart.hidden_size
    assert together.head_dim * together.num_attention_heads == together.hidden_size


def test_whole_planes_are_turned_and_some_coordinates_are_not():
    config = shrink(default("PhiForCausalLM", partial_rotary_factor=0.4), "PhiForCausalLM").config
    width = config.hidden_size // config.num_attention_heads
    turned = int(width * config.rope_parameters["partial_rotary_factor"])
    assert turned % 2 == 0
    assert 2 < turned < width


def test_weights_are_not_looked_at_and_neither_is_the_class_needed():
    """A model without memory says all that its config does."""
    config = default("BertForMaskedLM")
    of_model, of_config = shrink(on_meta("BertForMaskedLM", config)), shrink(config, "BertForMaskedLM")
    assert of_model.layers == of_config.layers
    assert of_model.hints == of_config.hints
    assert of_model.config.to_dict() == of_config.config.to_dict()


@pytest.mark.parametrize("tied", [True, False])
def test_what_is_tied_stays_tied_and_nothing_else(tied):
    """Also where the config says otherwise: T5 1.1 is loaded untied although transformers ties by its config."""
    config = default("T5ForConditionalGeneration", feed_forward_proj="gated-gelu")
    real: Any = on_meta("T5ForConditionalGeneration", config)
    if not tied:
        real.lm_head.weight = nn.Parameter(torch.empty_like(real.lm_head.weight))
    small: Any = shrink(real).build()
    assert (small.lm_head.weight is small.shared.weight) == tied
    assert small.encoder.embed_tokens.weight is small.shared.weight


def test_a_small_model_is_drawn_from_its_seed_alone():
    shrunk = shrink(default("BertModel"), "BertModel")
    before = torch.get_rng_state()
    first, again, other = shrunk.build(), shrunk.build(), shrunk.build(seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    name = "encoder.layer.0.output.dense.weight"
    assert torch.equal(first.get_parameter(name), again.get_parameter(name))
    assert not torch.equal(first.get_parameter(name), other.get_parameter(name))


def test_what_has_no_config_or_no_class_is_refused():
    with pytest.raises(NotShrunkError, match="VisionTransformer has no config of transformers"):
        shrink(timm.create_model("vit_tiny_patch16_224"))
    with pytest.raises(NotShrunkError, match="MyBert is no model class of transformers"):
        shrink(default("BertModel"), "MyBert")


def test_a_class_that_makes_no_small_model_is_refused(monkeypatch):
    """With what it says about it, after all adjustments."""
    made = transformers.BertModel.__init__

    def refuse(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        if config.hidden_size < 768 or config.vocab_size < 30522:
            raise ValueError("this class is for large models")
        made(self, config, *args, **kwargs)

    monkeypatch.setattr(transformers.BertModel, "__init__", refuse)
    with pytest.raises(NotShrunkError, match=r"no small BertModel .*this class is for large models"):
        shrink(default("BertModel"), "BertModel")
