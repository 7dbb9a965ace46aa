"""LoRA adapters as PEFT writes them: read as the model that PEFT itself merges, or refused in a sentence."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    ResNetConfig,
    ResNetForImageClassification,
)

from fusionlab import checkpoints
from fusionlab.errors import InputError
from tests.parts import one_in

SMALL = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 30}
LLAMA = LlamaConfig(**SMALL, num_key_value_heads=2, max_position_embeddings=16, attention_bias=True)
GPT2 = GPT2Config(n_embd=16, n_layer=2, n_head=4, vocab_size=30, n_positions=16, tie_word_embeddings=False)
RESNET = ResNetConfig(embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1], num_labels=3)
BERT = BertConfig(**SMALL, max_position_embeddings=16, num_labels=3)

LINEAR = ["q_proj", "v_proj", "down_proj"]
CASES: dict[str, tuple[Callable[[], PreTrainedModel], dict[str, Any]]] = {
    "plain": (lambda: LlamaForCausalLM(LLAMA), {"target_modules": LINEAR, "r": 3}),
    "rank-stabilised": (lambda: LlamaForCausalLM(LLAMA), {"target_modules": LINEAR, "r": 4, "use_rslora": True}),
    "ranks and alphas by pattern": (
        lambda: LlamaForCausalLM(LLAMA),
        {
            "target_modules": LINEAR,
            "r": 3,
            "rank_pattern": {"q_proj": 5},
            "alpha_pattern": {r"layers\.1\.self_attn\.v_proj": 3, "down_proj": 40},
        },
    ),
    "lengths of rows (DoRA)": (lambda: LlamaForCausalLM(LLAMA), {"target_modules": LINEAR, "r": 3, "use_dora": True}),
    "biases": (lambda: LlamaForCausalLM(LLAMA), {"target_modules": ["q_proj"], "r": 3, "bias": "all"}),
    "biases of its own": (lambda: LlamaForCausalLM(LLAMA), {"target_modules": ["q_proj"], "r": 3, "lora_bias": True}),
    "embeddings and a head": (lambda: LlamaForCausalLM(LLAMA), {"target_modules": ["embed_tokens", "lm_head"], "r": 3}),
    "embeddings (DoRA)": (
        lambda: LlamaForCausalLM(LLAMA),
        {"target_modules": ["embed_tokens"], "r": 3, "use_dora": True},
    ),
    "a whole module": (
        lambda: LlamaForCausalLM(LLAMA),
        {"target_modules": LINEAR, "r": 3, "modules_to_save": ["lm_head", "norm"]},
    ),
    "Conv1D": (lambda: GPT2LMHeadModel(GPT2), {"target_modules": ["c_attn", "c_proj"], "r": 3}),
    "Conv1D (DoRA)": (lambda: GPT2LMHeadModel(GPT2), {"target_modules": ["c_attn"], "r": 3, "use_dora": True}),
    "convolutions": (
        lambda: ResNetForImageClassification(RESNET),
        {"target_modules": ["convolution"], "r": 3, "task_type": None},
    ),
    "convolutions (DoRA)": (
        lambda: ResNetForImageClassification(RESNET),
        {"target_modules": ["convolution"], "r": 3, "task_type": None, "use_dora": True},
    ),
    "a classifier": (
        lambda: BertForSequenceClassification(BERT),
        {"target_modules": ["query"], "task_type": "SEQ_CLS"},
    ),
    "a classifier, and biases": (
        lambda: BertForSequenceClassification(BERT),
        {"target_modules": ["query"], "task_type": "SEQ_CLS", "bias": "all"},
    ),
}


def made(
    folder: Path, build: Callable[[], PreTrainedModel], options: dict[str, Any], dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    """A base model and a random adapter of it in two folders; what PEFT makes of both."""
    torch.manual_seed(0)
    base = build().to(dtype).eval()
    base.save_pretrained(folder / "base")
    base.name_or_path = str(folder / "base")
    config = peft.LoraConfig(**{"task_type": "CAUSAL_LM", "r": 4, **options})
    adapted = peft.get_peft_model(copy.deepcopy(base), config)
    for name, parameter in adapted.named_parameters():
        if parameter.requires_grad:
            scale = 0.1 if "magnitude" in name else 1.0
            parameter.data += scale * torch.rand(parameter.shape, dtype=parameter.dtype)
    adapted.save_pretrained(folder / "adapter", save_embedding_layers=False)
    return adapted.merge_and_unload(safe_merge=True)


def assert_close(found: nn.Module, expected: nn.Module, tolerance: float = 1e-6) -> None:
    assert type(found) is type(expected)
    state = expected.state_dict()
    assert found.state_dict().keys() == state.keys()
    for name, tensor in found.state_dict().items():
        assert tensor.dtype == state[name].dtype
        if tensor.is_floating_point():
            error = (tensor.double() - state[name].double()).norm() / state[name].double().norm().clamp_min(1e-30)
            assert float(error) < tolerance, name


@pytest.mark.parametrize("name", one_in(2, CASES))
def test_an_adapter_is_read_as_the_model_that_peft_merges(tmp_path: Path, name: str) -> None:
    """The base model is the one that the adapter names; the model is another than that."""
    build, options = CASES[name]
    expected = made(tmp_path, build, options)
    found = checkpoints.read(tmp_path / "adapter")
    assert (found.format, found.location, found.base) == ("transformers", tmp_path / "base", str(tmp_path / "base"))
    assert_close(found.model, expected)
    base = checkpoints.load(tmp_path / "base").state_dict()
    assert sum(not torch.allclose(tensor, base[n]) for n, tensor in found.model.state_dict().items()) > 0
    assert not found.model.training


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_computed_in_float32_and_rounded_once(tmp_path: Path, dtype: torch.dtype) -> None:
    build, options = CASES["plain"]
    expected = made(tmp_path, build, options, dtype)
    assert_close(checkpoints.load(tmp_path / "adapter"), expected, tolerance=float(torch.finfo(dtype).eps) / 2)


def test_a_head_that_the_base_model_has_not_comes_with_the_adapter(tmp_path: Path) -> None:
    """A classifier trained on a masked language model; its labels are as many as the head's rows."""
    torch.manual_seed(0)
    BertForMaskedLM(BERT).save_pretrained(tmp_path / "masked")
    torch.manual_seed(1)
    classifier = BertForSequenceClassification.from_pretrained(tmp_path / "masked", num_labels=7)
    config = peft.LoraConfig(
        task_type="SEQ_CLS", r=3, target_modules=["query", "value"], modules_to_save=["classifier", "pooler"]
    )
    adapted = peft.get_peft_model(classifier, config)
    for parameter in adapted.parameters():
        parameter.data += 0.1 * torch.rand(parameter.shape) * parameter.requires_grad
    adapted.save_pretrained(tmp_path / "adapter")
    found = checkpoints.load(tmp_path / "adapter")
    assert_close(found, adapted.merge_and_unload())
    assert found.config.num_labels == 7


def test_the_base_model_may_be_another_place(tmp_path: Path) -> None:
    """The one that is given comes first; one that is named and not there is asked for."""
    expected = made(tmp_path, *CASES["plain"])
    (tmp_path / "base").rename(tmp_path / "moved")
    with pytest.raises(InputError, match=r"names the base model .*base, which is not here .*expected --base"):
        checkpoints.read(tmp_path / "adapter")
    found = checkpoints.read(tmp_path / "adapter", base=tmp_path / "moved")
    assert_close(found.model, expected)
    assert found.base == str(tmp_path / "moved")


def test_pickled_adapters(tmp_path: Path) -> None:
    expected = made(tmp_path, *CASES["plain"])
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    torch.save(load_file(file), tmp_path / "adapter" / "adapter_model.bin")
    file.unlink()
    assert_close(checkpoints.load(tmp_path / "adapter"), expected)


Edit = Callable[[dict[str, Any], dict[str, Tensor]], object]
A, B = (f"base_model.model.model.layers.0.self_attn.q_proj.lora_{x}.weight" for x in "AB")
BAD: dict[str, tuple[Edit, str]] = {
    "another kind": (
        lambda c, t: c.update(peft_type="IA3"),
        "adapter_config.json is of an adapter of type 'IA3'; expected LORA",
    ),
    "another start": (
        lambda c, t: c.update(init_lora_weights="pissa"),
        "init_lora_weights is 'pissa', which fusionlab does not",
    ),
    "a base of one day": (lambda c, t: c.update(revision="v1"), "revision is 'v1', and fusionlab reads the newest"),
    "layers repeated": (lambda c, t: c.update(layer_replication=[[0, 2]]), "layer_replication is"),
    "no base model": (
        lambda c, t: c.update(base_model_name_or_path=None),
        "names no base model; expected one, or --base",
    ),
    "a base of numbers": (lambda c, t: c.update(base_model_name_or_path=3), "base_model_name_or_path is 3"),
    "alpha in words": (lambda c, t: c.update(lora_alpha="much"), "lora_alpha is 'much'"),
    "alphas in a list": (lambda c, t: c.update(alpha_pattern=["q_proj"]), "alpha_pattern"),
    "a pattern that takes for ever": (lambda c, t: c.update(alpha_pattern={"(a+)+b": 2}), "expected names of layers"),
    "no factor B": (
        lambda c, t: t.pop(B),
        r"adapter_model.safetensors holds no lora_B of model.layers.0.self_attn.q_proj",
    ),
    "ranks that differ": (lambda c, t: t.update({A: t[A][:2].clone()}), "factors of shapes"),
    "another width": (
        lambda c, t: t.update({B: t[B][:5].clone()}),
        "factors of .* expected the adapter's own base model",
    ),
    "no numbers": (
        lambda c, t: t[A].fill_(float("nan")),
        "lora_A of model.layers.0.self_attn.q_proj holds values that are not",
    ),
    "a vector": (lambda c, t: t.update({A: t[A][0].clone()}), "expected matrices"),
    "no length": (lambda c, t: c.update(use_dora=True), "holds no lora_magnitude_vector"),
    "an unknown layer": (
        lambda c, t: t.update(
            {B.replace("q_proj", "x_proj"): t[B].clone(), A.replace("q_proj", "x_proj"): t[A].clone()}
        ),
        "changes model.layers.0.self_attn.x_proj.weight, which .*base does not have",
    ),
    "an unknown part": (
        lambda c, t: t.update({A.replace("lora_A", "lora_C"): t[A].clone()}),
        "is no part of an adapter",
    ),
    "a module of another shape": (
        lambda c, t: t.update({"base_model.model.lm_head.weight": torch.zeros(3, 15)}),
        r"lm_head.weight is torch.float32 \(3, 15\)",
    ),
    "tokens that were added": (
        lambda c, t: t.update({"base_model.model.model.embed_tokens.weight": torch.zeros(33, 16)}),
        r"33 rows of .*, and .*base has 30; expected --base, .* resize_token_embeddings\(33\)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_refused_in_a_sentence(tmp_path: Path, name: str) -> None:
    made(tmp_path, *CASES["plain"])
    edit, told = BAD[name]
    config, file = tmp_path / "adapter" / "adapter_config.json", tmp_path / "adapter" / "adapter_model.safetensors"
    content, tensors = json.loads(config.read_text()), load_file(file)
    edit(content, tensors)
    config.write_text(json.dumps(content))
    save_file(tensors, file)
    with pytest.raises(InputError, match=told) as refused:
        checkpoints.read(tmp_path / "adapter")
    assert str(tmp_path / "adapter") in str(refused.value)
    assert "\n" not in str(refused.value)


def test_missing_weights_are_refused(tmp_path: Path) -> None:
    made(tmp_path, *CASES["plain"])
    (tmp_path / "adapter" / "adapter_model.safetensors").unlink()
    with pytest.raises(InputError, match=r"has no adapter_model.safetensors or adapter_model.bin"):
        checkpoints.read(tmp_path / "adapter")


@pytest.mark.parametrize("layer", ["wte", "lm_head"])
def test_a_change_of_half_of_a_tied_parameter_is_refused(tmp_path: Path, layer: str) -> None:
    """The other half would change with it, which the adapter did not."""
    tied = copy.deepcopy(GPT2)
    tied.tie_word_embeddings = True
    made(tmp_path, lambda: GPT2LMHeadModel(tied), {"target_modules": [layer], "r": 3})
    with pytest.raises(InputError, match=r"which is one parameter with (lm_head|transformer\.wte)\.weight in the base"):
        checkpoints.read(tmp_path / "adapter")


def test_a_folder_with_an_adapter_and_a_model_is_refused(tmp_path: Path) -> None:
    """It could be either; a config of the base model beside an adapter says nothing."""
    expected = made(tmp_path, *CASES["plain"])
    (tmp_path / "adapter" / "config.json").write_bytes((tmp_path / "base" / "config.json").read_bytes())
    assert_close(checkpoints.load(tmp_path / "adapter"), expected)
    (tmp_path / "adapter" / "model.safetensors").write_bytes((tmp_path / "base" / "model.safetensors").read_bytes())
    with pytest.raises(InputError, match=r"holds an adapter .* and a model .*; expected one of the two"):
        checkpoints.read(tmp_path / "adapter")


def test_an_adapter_of_no_transformers_model_is_refused(tmp_path: Path) -> None:
    made(tmp_path, *CASES["plain"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"the base model .*empty is no transformers folder"):
        checkpoints.read(tmp_path / "adapter", base=tmp_path / "empty")


def test_a_mean_of_adapters_has_no_cross_terms(tmp_path: Path) -> None:
    """Two adapters that are one change, with both factors of the second negated: their mean is that change.

    PEFT's own linear combination adds factors, so that one adapter's A meets the other's B: nothing is left there.
    """
    for name in ("one", "two"):
        made(tmp_path / name, *CASES["plain"])
    file = tmp_path / "two" / "adapter" / "adapter_model.safetensors"
    save_file({name: -tensor for name, tensor in load_file(file).items()}, file)
    place, layer = tmp_path / "one" / "base", "model.layers.0.self_attn.q_proj.weight"
    base = checkpoints.load(place)
    adapters = [tmp_path / name / "adapter" for name in ("one", "two")]
    theirs: Any = peft.PeftModel.from_pretrained(copy.deepcopy(base), adapters[0], adapter_name="one")
    theirs.load_adapter(adapters[1], adapter_name="two")
    theirs.add_weighted_adapter(["one", "two"], [0.5, 0.5], "both", combination_type="linear")
    theirs.set_adapter("both")
    before = base.state_dict()[layer].clone()
    left = theirs.merge_and_unload().state_dict()[layer] - before
    first, second = (checkpoints.read(adapter, base=place).model.state_dict()[layer] for adapter in adapters)
    assert float((first - before).norm()) > 1
    torch.testing.assert_close((first + second) / 2, first)
    assert float(left.norm()) < 1e-5
