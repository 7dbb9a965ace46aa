"""Growing: the function stays, on real classes and in float64; what cannot be grown is refused with the reason."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fusionlab.errors import InputError
from fusionlab.forward import main_output
from fusionlab.growing import grown
from fusionlab.symmetry import Alignment, blueprint
from fusionlab.symmetry.float64 import InFloat64, take_plain_products
from tests.parts import long, one_in
from tests.symmetry.models import generator, laws, randomize

from .families import CASES, among_silent_layers, bert, gpt2, llama, mixtral, t5, vit


def function(model: nn.Module, seed: int = 3) -> torch.Tensor:
    """What a model computes on inputs that growing itself has not looked at, in float64."""
    draw = generator(seed)
    inputs = {i.name: i.random(1, draw) for i in blueprint(model).inputs}
    twin = copy.deepcopy(model).double().eval()
    take_plain_products(twin)
    with torch.no_grad(), InFloat64():
        is_named = hasattr(twin, "main_input_name")
        return main_output(twin(**inputs) if is_named else twin(*inputs.values()))


def apart(one: nn.Module, other: nn.Module) -> float:
    """The largest difference of two models' logits, relative to the largest."""
    found, expected = function(one), function(other)
    return float((found - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=long) if name in ("t5", "clip", "gemma2") else name for name in one_in(3, CASES)]
)
def test_the_function_stays(name: str) -> None:
    case = CASES[name]
    small, large = randomize(case.build(**case.smaller), 0), case.build(**case.larger)
    growth = grown(small, large)
    assert type(growth.model) is type(small)
    assert {n: t.shape for n, t in growth.model.state_dict().items()} == {
        n: t.shape for n, t in large.state_dict().items()
    }
    assert apart(growth.model, small) < 1e-9
    assert growth.parameters[0] < growth.parameters[1]


def test_what_grew_is_told() -> None:
    small, large = randomize(vit(), 0), vit(hidden_size=20, num_hidden_layers=4, intermediate_size=31)
    growth = grown(small, large)
    assert growth.sizes == {
        "residual": ((12, 12), (20, 20)),
        "attention.qk": ((6, 6), (10, 10)),
        "attention.vo": ((6, 6), (10, 10)),
        "ffn": ((20, 20), (31, 31)),
    }
    assert [(stack.small, stack.positions, stack.length) for stack in growth.placements] == [("vit.layers", (1, 3), 4)]
    assert growth.parameters == tuple(sum(p.numel() for p in model.parameters()) for model in (small, large))
    assert growth.operations == (products_of(small), products_of(large))


def products_of(model: Any) -> int:
    """Twice the multiplications of a ViT's products in one pass, counted by hand."""
    sizes = model.config
    width, patches = sizes.hidden_size, (sizes.image_size // sizes.patch_size) ** 2
    tokens, numbers = patches + 1, sizes.num_channels * sizes.patch_size**2
    attention = tokens * width * (4 * width + 2 * tokens)
    layer = attention + 2 * tokens * width * sizes.intermediate_size
    return 2 * (patches * numbers * width + sizes.num_hidden_layers * layer + width * sizes.num_labels)


def test_labels_and_types_stay_and_inputs_are_not_modified() -> None:
    small = randomize(vit(num_labels=2, id2label={0: "cat", 1: "dog"}), 0).to(torch.bfloat16)
    before = {name: tensor.clone() for name, tensor in small.state_dict().items()}
    like = vit(hidden_size=24, num_labels=7)
    growth = grown(small, like)
    grew: Any = growth.model
    assert grew.config.id2label == {0: "cat", 1: "dog"}
    assert grew.classifier.weight.shape == (2, 24)
    assert {parameter.dtype for parameter in grew.parameters()} == {torch.bfloat16}
    assert growth.exact < 1e-9 < growth.stored
    assert all(torch.equal(tensor, before[name]) for name, tensor in small.state_dict().items())
    assert like.config.num_labels == 7  # type: ignore[union-attr]


def test_special_tokens_stay() -> None:
    """A classifier reads a text at its last token that is no padding, and the tokenizer is the small model's."""
    sizes = {"vocab_size": 19, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 6}
    sizes |= {"intermediate_size": 20, "num_hidden_layers": 1}
    small, like = (
        transformers.LlamaForSequenceClassification(
            transformers.LlamaConfig(**sizes, hidden_size=width, pad_token_id=padding, eos_token_id=padding)
        )
        for width, padding in ((12, 0), (20, 5))
    )
    grew: Any = grown(randomize(small, 0), like).model
    assert (grew.config.pad_token_id, grew.config.eos_token_id) == (0, 0)
    tokens = torch.randint(1, 19, (3, 9), generator=generator(1))
    tokens[0, 4:] = 0
    mask = (tokens != 0).long()
    with torch.no_grad():
        before, after = (model(tokens, attention_mask=mask).logits for model in (small.double(), grew.double()))
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-6)


def test_a_config_is_enough() -> None:
    small = randomize(vit(), 0)
    config = copy.deepcopy(small.config)
    config.hidden_size = 18  # type: ignore[union-attr]
    assert apart(grown(small, config).model, small) < 1e-9


@settings(laws, max_examples=4)
@given(st.integers(0, 100), st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 2)))
def test_growing_twice_computes_the_same(seed: int, steps: tuple[int, int, int]) -> None:
    """In two steps of any sizes, neither of which changes the function."""
    small = randomize(vit(num_hidden_layers=1), seed)
    middle, large = (
        vit(
            hidden_size=12 + 2 * part * steps[0],
            intermediate_size=20 + part * steps[1],
            num_hidden_layers=1 + part * steps[2],
        )
        for part in (1, 2)
    )
    twice = grown(grown(small, middle).model, large).model
    assert apart(twice, small) < 1e-9


def test_growing_in_two_steps_is_growing_at_once() -> None:
    """Where each step puts what is new behind what is there; folding a folded model changes nothing."""
    small = randomize(llama(head_dim=4), 0)
    middle = llama(head_dim=4, hidden_size=20, intermediate_size=25)
    large = llama(head_dim=4, hidden_size=24, intermediate_size=31)
    twice, once = grown(grown(small, middle).model, large).model, grown(small, large).model
    for name, tensor in once.state_dict().items():
        torch.testing.assert_close(twice.state_dict()[name], tensor, rtol=1e-12, atol=1e-12)


def test_a_grown_model_of_timm_has_its_own_labels_and_ways_with_images() -> None:
    """Of the larger one it has the sizes alone."""
    sizes: dict[str, Any] = {"img_size": 8, "patch_size": 4, "in_chans": 1, "depth": 1, "num_classes": 3}
    small, large = (
        timm.create_model("vit_tiny_patch16_224", embed_dim=width, num_heads=2, **sizes) for width in (12, 20)
    )
    randomize(small, 0)
    small.pretrained_cfg |= {"mean": (0.1, 0.1, 0.1), "label_names": ["a", "b", "c"]}
    large.pretrained_cfg |= {"mean": (0.7, 0.7, 0.7), "label_names": ["c", "b", "a"], "license": "mit"}
    twin: Any = grown(small, large).model
    assert twin.pretrained_cfg["mean"] == (0.1, 0.1, 0.1)
    assert twin.pretrained_cfg["label_names"] == ["a", "b", "c"]
    assert twin.pretrained_cfg.get("license") == small.pretrained_cfg.get("license")
    assert large.pretrained_cfg["mean"] == (0.7, 0.7, 0.7), "the larger model is not modified"


def test_nothing_is_grown_where_nothing_is_larger() -> None:
    small = randomize(vit(), 0)
    growth = grown(small, vit())
    assert growth.sizes == {}
    assert all(torch.equal(tensor, small.state_dict()[name]) for name, tensor in growth.model.state_dict().items())


def test_a_grown_model_has_the_symmetry_of_its_size() -> None:
    """An alignment of the larger architecture keeps its function, folded norms and all."""
    small = randomize(vit(), 0)
    twin = grown(small, vit(hidden_size=20, num_hidden_layers=3)).model
    folded = blueprint(twin).after_folding
    assert folded is not None
    moved = Alignment.random(folded, generator(1)).apply(twin)
    assert apart(moved, small) < 1e-9


def test_layers_go_where_data_say() -> None:
    """A model's layers are found again among one that writes nothing, and one that comes after all."""
    small = randomize(vit(num_hidden_layers=2), 0)
    large = among_silent_layers(small, randomize(vit(num_hidden_layers=4), 0), (1, 2), (0,))
    data = [{"pixel_values": torch.randn(8, 1, 8, 8, generator=generator(5))}]
    (stack,) = grown(small, large, data).placements
    assert stack.positions == (1, 2)


def cohere(**changes: Any) -> nn.Module:
    """A language model whose norms have gains for each head."""
    sizes = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "use_qk_norm": True, "vocab_size": 19}
    sizes |= {"hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 1, "pad_token_id": None}
    return transformers.CohereForCausalLM(transformers.CohereConfig(**{**sizes, **changes}))


REFUSALS: dict[str, tuple[Callable[[], Any], Callable[[], Any], str]] = {
    "narrower": (vit, lambda: vit(hidden_size=8), "a dimension of 12 that would be 8 .hidden_size"),
    "fewer units": (vit, lambda: vit(intermediate_size=10), "a dimension of 20 that would be 10 .intermediate_size"),
    "fewer layers": (vit, lambda: vit(num_hidden_layers=1), "'vit.layers' has 2 layers and would have 1; expected"),
    "fewer heads": (vit, lambda: vit(num_attention_heads=1), "2 key-value heads of 1 queries each do not fit into 1"),
    "narrower heads": (
        vit, lambda: vit(hidden_size=16, num_attention_heads=4), "a dimension of 6 that would be 4; expected",
    ),
    "another image": (vit, lambda: vit(image_size=12), "has 5 in a dimension that is no hidden one .* would have 10"),
    "other patches": (vit, lambda: vit(patch_size=2), "has 5 in a dimension that is no hidden one"),
    "another vocabulary": (llama, lambda: llama(vocab_size=23), "has 19 in .* would have 23 .vocab_size"),
    "another activation": (vit, lambda: vit(hidden_size=20, hidden_act="relu"), "the configs differ in .*hidden_act"),
    "other frequencies": (
        llama, lambda: llama(rope_theta=100.0), "no exact embedding .* the configs differ in .*rope_theta",
    ),
    "another window": (
        lambda: mixtral(sliding_window=None), lambda: mixtral(hidden_size=20, sliding_window=16),
        "attention reaches elsewhere .* the configs differ in sliding_window .None, 16.; expected sizes only",
    ),
    "wider rotary heads": (llama, lambda: llama(head_dim=8), "rotary positions turn heads 4 wide by other frequencies"),
    "a broken multiple": (bert, lambda: bert(hidden_size=20), "12 wide and would be 20 wide.* a whole multiple of 12"),
    "tied embeddings": (gpt2, lambda: gpt2(n_embd=20), "12 wide and would be 20 wide.*--untie"),
    "deeper behind the sums": (bert, lambda: bert(num_hidden_layers=3), "a layer that writes nothing still normalises"),
    "a router without biases": (mixtral, lambda: mixtral(num_local_experts=4), "experts that are added are picked"),
    "kinds of layers": (
        lambda: t5(num_layers=1),
        lambda: transformers.MT5ForConditionalGeneration(transformers.MT5Config(num_layers=1, vocab_size=19)),
        "a T5ForConditionalGeneration and the larger one a MT5ForConditionalGeneration; expected one class",
    ),
    "a config of another kind": (vit, transformers.BertConfig, "given by a BertConfig, and the model has a ViTConfig"),
    "heads in an order that is not followed": (
        cohere,
        lambda: cohere(num_attention_heads=8, num_key_value_heads=4),
        "and no map between the heads of both is known; expected a larger model with the same number of heads",
    ),
    "tied in the larger alone": (
        lambda: gpt2(tie_word_embeddings=False), lambda: gpt2(n_layer=3), "tie_word_embeddings false",
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSALS)
def test_what_cannot_be_grown_is_refused(why: str) -> None:
    small, like, sentence = REFUSALS[why]
    with pytest.raises(InputError, match=sentence):
        grown(randomize(small(), 0), like())


def test_data_need_a_model_to_run() -> None:
    with pytest.raises(InputError, match="the larger one is a config alone"):
        grown(vit(), transformers.ViTConfig(), [{"pixel_values": torch.zeros(1, 1, 8, 8)}])


def test_a_config_that_makes_no_model_is_refused() -> None:
    config = copy.deepcopy(bert().config)
    config.num_attention_heads = 5  # type: ignore[union-attr]
    with pytest.raises(InputError, match="the larger config makes no BertForSequenceClassification"):
        grown(bert(), config)
