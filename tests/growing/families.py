"""Small models of each family, and sizes that they are grown to."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import nn

from tests.symmetry.models import timm_model

TOKENS: dict[str, Any] = {"vocab_size": 19, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
ENCODER: dict[str, Any] = {
    "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 20,
}  # fmt: skip
DECODER: dict[str, Any] = {**ENCODER, "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, **TOKENS}
TEXT: dict[str, Any] = {**ENCODER, **TOKENS, "pad_token_id": 0, "max_position_embeddings": 20}
PIXELS: dict[str, Any] = {**ENCODER, "image_size": 8, "patch_size": 4, "num_channels": 1}


def vit(**changes: Any) -> nn.Module:
    """A classifier with norms before each part."""
    config = transformers.ViTConfig(**{**PIXELS, "num_labels": 3, **changes})
    return transformers.ViTForImageClassification(config)


def timm_vit(**changes: Any) -> nn.Module:
    """A classifier of timm, with layer scales."""
    return timm_model("deit3_small_patch16_224", **changes)


def bert(**changes: Any) -> nn.Module:
    """A classifier with norms behind each sum."""
    return transformers.BertForSequenceClassification(transformers.BertConfig(**{**TEXT, "num_labels": 3, **changes}))


def deberta(**changes: Any) -> nn.Module:
    """A classifier whose scores read positions through the same maps as tokens."""
    relative = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "share_att_key": True}
    positions = {"position_buckets": 4, "norm_rel_ebd": "layer_norm", "pooler_hidden_size": 12}
    config = transformers.DebertaV2Config(**{**TEXT, **relative, **positions, "num_labels": 3, **changes})
    return transformers.DebertaV2ForSequenceClassification(config)


def gpt2(**changes: Any) -> nn.Module:
    """A language model whose output embeddings are its input embeddings, norms before each part."""
    shape = {"n_embd": 12, "n_layer": 2, "n_head": 2, "n_positions": 16}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**{**TOKENS, **shape, **changes}))


def llama(**changes: Any) -> nn.Module:
    """A language model with rotary positions, grouped queries and gated units."""
    config = transformers.LlamaConfig(**{**DECODER, "tie_word_embeddings": False, **changes})
    return transformers.LlamaForCausalLM(config)


def gemma2(**changes: Any) -> nn.Module:
    """A language model with norms around each part, gains stored less one, tied and multiplied embeddings."""
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**{**DECODER, "head_dim": 4, **changes}))


def gpt_oss(**changes: Any) -> nn.Module:
    """A mixture of experts whose router has biases."""
    shape = {"head_dim": 4, "num_local_experts": 3, "num_experts_per_tok": 2, "layer_types": ["full_attention"] * 2}
    return transformers.GptOssForCausalLM(transformers.GptOssConfig(**{**DECODER, **shape, **changes}))


def mixtral(**changes: Any) -> nn.Module:
    """A mixture of experts whose router has none."""
    shape = {"num_local_experts": 3, "num_experts_per_tok": 2}
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(**{**DECODER, **shape, **changes}))


def t5(**changes: Any) -> nn.Module:
    """An encoder and decoder with biases of positions in their first layers alone, and tied embeddings."""
    shape = {"d_model": 12, "d_kv": 4, "d_ff": 20, "num_layers": 2, "num_decoder_layers": 1, "num_heads": 2}
    return transformers.T5ForConditionalGeneration(transformers.T5Config(**{"vocab_size": 19, **shape, **changes}))


def bart(**changes: Any) -> nn.Module:
    """An encoder and decoder with norms behind each sum, and tied embeddings."""
    shape = {"d_model": 12, "vocab_size": 50, "max_position_embeddings": 20}
    sizes = {"layers": 1, "attention_heads": 2, "ffn_dim": 20}
    stacks = {f"{stack}_{name}": value for stack in ("encoder", "decoder") for name, value in sizes.items()}
    return transformers.BartForConditionalGeneration(transformers.BartConfig(**{**shape, **stacks, **changes}))


def clip(text: Mapping[str, Any] = {}, vision: Mapping[str, Any] = {}, latent: int = 8) -> nn.Module:
    """Two towers, and a space that both are compared in."""
    words = {**TEXT, "num_hidden_layers": 1, "max_position_embeddings": 12, "eos_token_id": 2, **text}
    pixels = {**PIXELS, "num_hidden_layers": 1, "hidden_size": 16, "num_channels": 3, **vision}
    return transformers.CLIPModel(
        transformers.CLIPConfig(text_config=words, vision_config=pixels, projection_dim=latent)
    )


def among_silent_layers(small: nn.Module, large: nn.Module, places: Sequence[int], silent: Sequence[int]) -> nn.Module:
    """The larger ViT with the small one's parameters, its layers in some places and others that write nothing."""
    state = large.state_dict()
    for name, tensor in small.state_dict().items():
        index = re.search(r"layers\.(\d+)", name)
        target = name if index is None else name.replace(index[0], f"layers.{places[int(index[1])]}")
        state[target] = tensor
    for name in state:
        if any(f"layers.{i}.{part}." in name for i in silent for part in ("attention.o_proj", "mlp.fc2")):
            state[name] = torch.zeros_like(state[name])
    large.load_state_dict(state)
    return large


@dataclass(frozen=True)
class Case:
    """A family, and the sizes that a small model of it is grown to.

    Attributes:
        build: makes a model of the family.
        larger: what the larger model has otherwise.
        smaller: what the small model has otherwise.
    """

    build: Callable[..., nn.Module]
    larger: dict[str, Any]
    smaller: dict[str, Any] = field(default_factory=dict)


CASES = {
    "vit-everything": Case(vit, {"hidden_size": 20, "num_hidden_layers": 3, "intermediate_size": 31}),
    "vit-heads": Case(vit, {"hidden_size": 24, "num_attention_heads": 4}),
    "vit-depth": Case(vit, {"num_hidden_layers": 5}),
    "timm": Case(timm_vit, {"embed_dim": 30, "depth": 3}),
    "bert-multiple": Case(bert, {"hidden_size": 24, "intermediate_size": 31, "num_attention_heads": 3}),
    # Heads as wide as before: older versions of transformers compute the factor of their scores in compiled float32.
    "deberta": Case(deberta, {"hidden_size": 24, "pooler_hidden_size": 24, "num_attention_heads": 4}),
    "gpt2-tied": Case(gpt2, {"n_embd": 24, "n_layer": 3, "n_head": 3}),
    "gpt2-untied": Case(gpt2, {"n_embd": 20, "tie_word_embeddings": False}, {"tie_word_embeddings": False}),
    "gpt2-untied-on-the-way": Case(gpt2, {"n_embd": 20, "tie_word_embeddings": False}),
    "llama": Case(
        llama,
        {
            "hidden_size": 24, "num_hidden_layers": 4, "intermediate_size": 31, "num_attention_heads": 6,
            "num_key_value_heads": 3,
        },
    ),
    "llama-queries": Case(llama, {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 4}, {"head_dim": 4}),
    "llama-no-groups": Case(
        llama, {"num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 4}, {"head_dim": 4}
    ),
    "gemma2": Case(gemma2, {"hidden_size": 24, "intermediate_size": 30, "num_hidden_layers": 4}),
    "gpt-oss-experts": Case(gpt_oss, {"num_local_experts": 5, "hidden_size": 24, "num_attention_heads": 6}),
    "mixtral": Case(mixtral, {"hidden_size": 24, "num_attention_heads": 6, "intermediate_size": 30}),
    "t5": Case(t5, {"d_model": 20, "d_kv": 6, "num_heads": 3, "d_ff": 30, "num_layers": 3, "num_decoder_layers": 3}),
    "bart": Case(bart, {"d_model": 24, "decoder_ffn_dim": 30, "encoder_attention_heads": 3}),
    "clip": Case(
        clip,
        {"text": {"hidden_size": 20, "num_hidden_layers": 2}, "vision": {"hidden_size": 32}, "latent": 12},
    ),
}  # fmt: skip
