"""The table of small random models that the tests of symmetry and matching run on."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import timm
import torch
from hypothesis import settings
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    RobertaConfig,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
    RobertaModel,
    ViTConfig,
    ViTForImageClassification,
    ViTModel,
)

from fusionlab.forward import forward, main_output
from fusionlab.symmetry import Alignment, Blueprint, blueprint
from fusionlab.symmetry.groups import Invertible, Orthogonal

# The same examples on every run, and no failures because the machine is busy.
laws = settings(derandomize=True, deadline=None, max_examples=30, database=None)

LAYERS, HEADS, HEAD_DIM, HIDDEN, INTERMEDIATE = 2, 3, 8, 24, 40


def text_config(kind: type, **changes: object) -> BertConfig | RobertaConfig:
    """A small text encoder's config; head size, number of heads, widths and lengths all differ."""
    return kind(
        vocab_size=31,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=INTERMEDIATE,
        max_position_embeddings=20,
        num_labels=5,
        **changes,
    )


def vit_config(**changes: object) -> ViTConfig:
    """A small ViT's config: nine patches and the class token."""
    return ViTConfig(
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=INTERMEDIATE,
        image_size=12,
        patch_size=4,
        num_labels=5,
        **changes,
    )


def timm_model(name: str, **changes: object) -> nn.Module:
    """A small member of timm's family."""
    small = {"img_size": 12, "patch_size": 4, "embed_dim": HIDDEN, "depth": LAYERS, "num_heads": HEADS, "mlp_ratio": 2}
    return timm.create_model(name, pretrained=False, num_classes=5, **(small | changes))


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes:
        name: shown in the test's id.
        build: makes the model, on which `randomize` then acts.
        untouched: the parameters that no space acts on, in full.
        free: parameters whose basis does not matter by themselves: softmax ignores what the key bias adds.
    """

    name: str
    build: Callable[[], nn.Module]
    untouched: tuple[str, ...]
    free: tuple[str, ...] = ()


def _key_biases(pattern: str) -> tuple[str, ...]:
    return tuple(pattern.format(layer) for layer in range(LAYERS))


def _bare_text(*left: str) -> tuple[str, ...]:
    """The parameters of a bare text encoder that only touch the residual stream, which is its output."""
    tables = ("word", "position", "token_type")
    names = [f"embeddings.{table}_embeddings.weight" for table in tables]
    names += ["embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias"]
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}"
        names += [f"{at}.attention.output.dense.bias"]
        names += [f"{at}.attention.output.LayerNorm.weight", f"{at}.attention.output.LayerNorm.bias"]
        names += [f"{at}.output.dense.bias", f"{at}.output.LayerNorm.weight", f"{at}.output.LayerNorm.bias"]
    return (*names, "pooler.dense.weight", "pooler.dense.bias", *left)


def _bare_vit() -> tuple[str, ...]:
    names = ["embeddings.cls_token", "embeddings.position_embeddings"]
    names += [f"embeddings.patch_embeddings.projection.{part}" for part in ("weight", "bias")]
    for layer in range(LAYERS):
        at = f"layers.{layer}"
        names += [f"{at}.layernorm_before.weight", f"{at}.layernorm_before.bias", f"{at}.attention.o_proj.bias"]
        names += [f"{at}.layernorm_after.weight", f"{at}.layernorm_after.bias", f"{at}.mlp.fc2.bias"]
    return (*names, "layernorm.weight", "layernorm.bias", "pooler.dense.weight", "pooler.dense.bias")


def _text_cases() -> Iterator[Case]:
    bert_keys = "encoder.layer.{}.attention.self.key.bias"
    yield Case(
        "bert-model", lambda: BertModel(text_config(BertConfig)), untouched=_bare_text(), free=_key_biases(bert_keys)
    )
    yield Case(
        "bert-sequence",
        lambda: BertForSequenceClassification(text_config(BertConfig)),
        untouched=("bert.pooler.dense.bias", "classifier.weight", "classifier.bias"),
        free=_key_biases("bert." + bert_keys),
    )
    yield Case(
        "bert-token",
        lambda: BertForTokenClassification(text_config(BertConfig)),
        untouched=("classifier.bias",),
        free=_key_biases("bert." + bert_keys),
    )
    yield Case(
        "roberta-model",
        lambda: RobertaModel(text_config(RobertaConfig)),
        untouched=_bare_text(),
        free=_key_biases(bert_keys),
    )
    yield Case(
        "roberta-sequence",
        lambda: RobertaForSequenceClassification(text_config(RobertaConfig)),
        untouched=("classifier.dense.bias", "classifier.out_proj.weight", "classifier.out_proj.bias"),
        free=_key_biases("roberta." + bert_keys),
    )
    yield Case(
        "roberta-token",
        lambda: RobertaForTokenClassification(text_config(RobertaConfig)),
        untouched=("classifier.bias",),
        free=_key_biases("roberta." + bert_keys),
    )


def _vision_cases() -> Iterator[Case]:
    yield Case(
        "vit-model",
        lambda: ViTModel(vit_config()),
        untouched=_bare_vit(),
        free=_key_biases("layers.{}.attention.k_proj.bias"),
    )
    yield Case(
        "vit-classifier",
        lambda: ViTForImageClassification(vit_config()),
        untouched=("classifier.bias",),
        free=_key_biases("vit.layers.{}.attention.k_proj.bias"),
    )
    yield Case(
        "vit-without-qkv-bias",
        lambda: ViTForImageClassification(vit_config(qkv_bias=False)),
        untouched=("classifier.bias",),
    )
    yield Case("timm-plain", lambda: timm_model("vit_tiny_patch16_224"), untouched=("head.bias",))
    yield Case(
        "timm-average-pool",
        lambda: timm_model("vit_tiny_patch16_224", global_pool="avg"),
        untouched=("head.bias",),
    )
    yield Case(
        "timm-without-qkv-bias",
        lambda: timm_model("vit_tiny_patch16_224", qkv_bias=False),
        untouched=("head.bias",),
    )
    yield Case(
        "timm-distilled",
        lambda: timm_model("deit_tiny_distilled_patch16_224"),
        untouched=("head.bias", "head_dist.bias"),
    )


CASES = {case.name: case for case in (*_text_cases(), *_vision_cases())}


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@torch.no_grad()
def randomize(model: nn.Module, seed: int) -> nn.Module:
    """Give every parameter, biases and norms included, random numbers that keep activations of order one."""
    draw = generator(seed)
    model = model.double().eval()
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
        is_gain = parameter.ndim == 1 and name.endswith("weight")
        parameter.copy_(1 + 0.3 * noise if is_gain else 0.3 * noise)
    return model


def random_model(name: str, seed: int = 0) -> nn.Module:
    """A model of the table, in float64 and eval mode, all of its parameters random."""
    return randomize(CASES[name].build(), seed)


@torch.no_grad()
def outputs(model: nn.Module, seed: int = 0, batch: int = 3) -> Tensor:
    """All that a model gives its user on random inputs: logits, or hidden states and what is pooled from them."""
    draw = generator(seed)
    found = forward(model, {i.name: i.random(batch, draw) for i in blueprint(model).inputs})
    pooled = getattr(found, "pooler_output", None)
    tensors = [main_output(found), *([] if pooled is None else [pooled])]
    if isinstance(found, tuple):
        tensors = list(found)
    return torch.cat([tensor.flatten(1) for tensor in tensors], 1)


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def moving(description: Blueprint, name: str, seed: int) -> Tensor:
    """A random element of one space that is not the identity."""
    space = description.spaces[name]
    draw = generator(seed)
    while True:
        element = space.group.random(space.copies, draw)
        if not torch.equal(element, space.group.identity(space.copies)):
            return element


def moving_all(description: Blueprint, seed: int = 0) -> Alignment:
    """A random alignment none of whose elements is the identity."""
    names = enumerate(description.spaces)
    return Alignment(description, {name: moving(description, name, 1000 * seed + i) for i, name in names})


def rigid(description: Blueprint, seed: int, names: tuple[str, ...] | None = None) -> Alignment:
    """A random alignment of permutations and orthogonal matrices, which keeps all distances."""
    draw = generator(seed)
    elements = {}
    for name, space in description.spaces.items():
        group = Orthogonal(space.group.size) if isinstance(space.group, Invertible) else space.group
        if names is None or space.role in names:
            elements[name] = group.random(space.copies, draw)
    return Alignment(description, elements)


def largest_difference(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    assert found.keys() == expected.keys()
    return max(float((found[name] - expected[name]).abs().max()) for name in expected)
