"""Base models under the head of their pretraining, or none: what comes of them, and what is refused."""

from typing import Any

import pytest
import torch
import transformers
from torch import nn

import fusionlab
from fusionlab.errors import InputError
from fusionlab.fusion import Fuser, FusionPlan, TaskModels
from fusionlab.fusion.heads.of_base import fitted_base
from fusionlab.fusion.heads.parameters import base_module, prefix_of
from fusionlab.matching.recipe import recipe
from fusionlab.merging import find_method, methods
from fusionlab.stages import run

SIZES: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
# By family: its config, and the classes of a fine-tune, of the base under another head, and of the bare base.
FAMILIES: dict[str, tuple[Any, str, str, str]] = {
    "bert": (
        transformers.BertConfig(vocab_size=40, **SIZES), "BertForSequenceClassification", "BertForMaskedLM",
        "BertModel",
    ),
    "bert for tokens": (
        transformers.BertConfig(vocab_size=40, **SIZES), "BertForTokenClassification", "BertForSequenceClassification",
        "BertModel",
    ),
    "deberta": (
        transformers.DebertaV2Config(vocab_size=40, **SIZES), "DebertaV2ForSequenceClassification",
        "DebertaV2ForMaskedLM", "DebertaV2Model",
    ),
    "vit": (
        transformers.ViTConfig(image_size=8, patch_size=4, **SIZES), "ViTForImageClassification",
        "ViTForMaskedImageModeling", "ViTModel",
    ),
    "llama": (
        transformers.LlamaConfig(vocab_size=40, num_key_value_heads=1, pad_token_id=0, **SIZES),
        "LlamaForSequenceClassification", "LlamaForCausalLM", "LlamaModel",
    ),
    "tied gpt2": (
        transformers.GPT2Config(vocab_size=40, n_embd=16, n_layer=2, n_head=2, n_positions=16), "GPT2LMHeadModel",
        "GPT2ForSequenceClassification", "GPT2Model",
    ),
}  # fmt: skip


def made(name: str, config: Any, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model: nn.Module = getattr(transformers, name)(config).double().eval()
    with torch.no_grad():  # vectors too
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape))
    return model


def family(kind: str, place: int) -> tuple[list[nn.Module], nn.Module]:
    """Two fine-tunes, and the base they come from: of their class (0), under another head (1), or bare (2)."""
    config, *classes = FAMILIES[kind]
    base = made(classes[place], config, 0)
    body = (base_module(base) or base).state_dict()
    tuned = []
    for seed in (1, 2):
        model = made(classes[0], config, seed)
        prefix = prefix_of(model)
        own = model.state_dict()
        change = {name: 0.02 * torch.randn(tensor.shape).double() for name, tensor in body.items()}
        model.load_state_dict(own | {prefix + n: t + change[n] for n, t in body.items() if prefix + n in own})
        tuned.append(model)
    return tuned, base


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("place", [1, 2])
def test_what_the_base_has_is_its_own_and_the_rest_is_averaged(kind: str, place: int) -> None:
    """In the fine-tunes' class, with the base's body, tied weights with it; a merge averages what it lacks."""
    tuned, base = family(kind, place)
    fitted = fitted_base(base, tuned[0])
    assert type(fitted.model) is type(tuned[0])
    body, prefix = (base_module(base) or base).state_dict(), prefix_of(tuned[0])
    found = fitted.model.state_dict()
    known = {name for name in found if name.removeprefix(prefix) in body and name.startswith(prefix)}
    assert all(torch.equal(found[name], body[name.removeprefix(prefix)]) for name in known)
    if kind == "tied gpt2":
        assert torch.equal(found["lm_head.weight"], body["wte.weight"])
        known.add("lm_head.weight")
    assert fitted.lacking == found.keys() - known
    states = [model.state_dict() for model in tuned]
    merge = fusionlab.merge(tuned, "task_arithmetic", base=base, lambda_=1.5).state_dict()
    for name, tensor in merge.items():
        mean = (states[0][name] + states[1][name]) / 2
        wanted = mean if name in fitted.lacking else found[name] + 1.5 * (mean - found[name])
        assert torch.allclose(tensor, wanted, atol=1e-12), name


@pytest.mark.parametrize("method", sorted(n for n in methods() if "base" in find_method(n).requires()))
def test_every_method_averages_a_head_that_the_base_lacks(method: str) -> None:
    tuned, base = family("bert", 2)
    data = [{"input_ids": torch.randint(40, (4, 5))}] if "inputs" in find_method(method).requires() else None
    merge = fusionlab.merge(tuned, method, base=base, data=data).state_dict()
    for name in ("classifier.weight", "classifier.bias"):
        mean = sum(model.state_dict()[name] for model in tuned) / 2
        assert torch.allclose(merge[name], mean, atol=1e-12)


def test_a_base_of_a_wider_type_is_not_rounded() -> None:
    tuned, base = family("bert", 2)
    narrow = [model.to(torch.bfloat16) for model in tuned]
    found = fitted_base(base, narrow[0]).model.state_dict()
    name = "encoder.layer.0.output.dense.weight"
    assert torch.equal(found[f"bert.{name}"], base.state_dict()[name])
    assert fusionlab.merge(narrow, "ties", base=base).dtype is torch.bfloat16


def test_a_base_of_the_same_class_is_itself() -> None:
    """Its head counts, where it has the fine-tunes' labels."""
    tuned, base = family("bert", 0)
    fitted = fitted_base(base, tuned[0])
    assert fitted.model is base
    assert not fitted.lacking


def test_a_base_for_other_labels_has_no_head_in_common() -> None:
    config = transformers.BertConfig(vocab_size=40, num_labels=5, **SIZES)
    tuned, _ = family("bert", 0)
    other = made("BertForSequenceClassification", config, 3)
    fitted = fitted_base(other, tuned[0])
    assert fitted.lacking == {"classifier.weight", "classifier.bias"}
    assert torch.equal(
        fitted.model.state_dict()["bert.pooler.dense.bias"], other.state_dict()["bert.pooler.dense.bias"]
    )


@pytest.mark.parametrize("matching", ["none", "weights"])
def test_twins_have_the_base_in_their_basis(matching: str) -> None:
    """By a sum of task vectors whose factor is 1 the base has no part, whatever the basis and its head."""
    tuned, base = family("bert", 1)
    plan = FusionPlan(
        methods={"task_arithmetic": {"lambda_": 1.0}, "simple": {}}, matchings={"weights": recipe("weights")}
    )
    fused = run(Fuser({"a": tuned[0], "b": tuned[1]}, plan, base=base).fuse())
    first, second = (
        next(c.model for c in fused.candidates if (c.method, c.matching) == (method, matching))
        for method in ("task_arithmetic", "simple")
    )
    for name, tensor in first.state_dict().items():
        assert torch.allclose(tensor, second.state_dict()[name], atol=1e-10), name


@pytest.mark.parametrize("place", [1, 2])
def test_tasks_of_texts_and_of_tokens_share_what_both_have(place: int) -> None:
    """The pooler, which models for tokens lack, stays with the head; the base may have one or not."""
    texts, base = family("bert", place)
    config = transformers.BertConfig(vocab_size=40, num_labels=5, **SIZES)
    tokens = made("BertForTokenClassification", config, 4)
    body = {n: t for n, t in texts[1].state_dict().items() if n.startswith("bert.") and "pooler" not in n}
    tokens.load_state_dict(tokens.state_dict() | body)
    plan = FusionPlan(methods={"ties": {}}, heads="own", matchings={"weights": recipe("weights")})
    fuser = Fuser({"texts": texts[0], "tokens": tokens}, plan, base=base)
    merged = run(fuser.fuse()).candidates
    found = next(c.model for c in merged if (c.method, c.matching) == ("ties", "none"))
    assert isinstance(found, TaskModels)
    pooler, head = "bert.pooler.dense.weight", "classifier.weight"
    assert torch.equal(found.tasks[0].state_dict()[pooler], texts[0].state_dict()[pooler])
    assert pooler not in found.tasks[1].state_dict()
    assert torch.equal(found.tasks[1].state_dict()[head], tokens.state_dict()[head])
    name = "bert.encoder.layer.0.output.dense.weight"
    assert torch.equal(found.tasks[0].state_dict()[name], found.tasks[1].state_dict()[name])
    shared = found.sharing().tasks
    assert shared[0].get_parameter(name) is shared[1].get_parameter(name)
    assert not shared[0].get_parameter(pooler).requires_grad
    twins = next(c.model for c in merged if (c.method, c.matching) == ("ties", "weights"))
    inputs = torch.randint(40, (3, 6))
    for task in twins.tasks:
        assert torch.isfinite(task(input_ids=inputs).logits).all()


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"hidden_size": 32}, "Bert", r"another size than its fine-tunes \(hidden_size: 32 and 16\)"),
        ({"num_hidden_layers": 3}, "Bert", r"num_hidden_layers: 3 and 2"),
        ({"num_attention_heads": 4}, "Bert", r"num_attention_heads: 4 and 2"),
        ({"vocab_size": 44}, "Bert", r"shape 44 x 16 in the base model; expected shape 40 x 16 .*fusionlab vocab"),
        (
            {"max_position_embeddings": 600},
            "Roberta",
            "a RobertaModel, and a fine-tune a BertForSequenceClassification",
        ),
    ],
)
@pytest.mark.parametrize("heads", ["merged", "own"])
def test_another_model_is_no_base(changes: dict[str, Any], kind: str, said: str, heads: Any) -> None:
    tuned, _ = family("bert", 0)
    config = getattr(transformers, f"{kind}Config")(**{"vocab_size": 40, **SIZES, **changes})
    base = made(f"{kind}Model", config, 0)
    with pytest.raises(InputError, match=said):
        Fuser({"a": tuned[0], "b": tuned[1]}, FusionPlan(methods={"ties": {}}, heads=heads), base=base)
    if heads == "merged":
        with pytest.raises(InputError, match=said):
            fusionlab.merge(tuned, "ties", base=base)


@pytest.mark.parametrize("heads", ["merged", "own"])
def test_a_deeper_model_under_the_same_head_is_no_base(heads: Any) -> None:
    tuned, _ = family("bert", 0)
    config = transformers.BertConfig(vocab_size=40, **{**SIZES, "num_hidden_layers": 3})
    base = made("BertForSequenceClassification", config, 0)
    with pytest.raises(InputError, match=r"encoder\.layer\.2\."):
        Fuser({"a": tuned[0], "b": tuned[1]}, FusionPlan(methods={"simple": {}}, heads=heads), base=base)
