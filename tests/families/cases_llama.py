"""Llama and its relatives: decoders with RMSNorm, rotary positions, gated units and grouped-query attention."""

from collections.abc import Callable
from typing import Any

import transformers
from torch import nn

from tests.families.harness import Case

SIZES: dict[str, Any] = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "intermediate_size": 20,
    "vocab_size": 40,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "num_labels": 3,
}
# Attention with one key-value head for each query head, for two or three of them, and for all.
MHA = {"num_attention_heads": 3, "num_key_value_heads": 3}
GQA2 = {"num_attention_heads": 4, "num_key_value_heads": 2}
GQA3 = {"num_attention_heads": 6, "num_key_value_heads": 2}
MQA = {"num_attention_heads": 3, "num_key_value_heads": 1}
# Enough key-value heads that a random order of them is not the one they had.
MANY = {"num_attention_heads": 12, "num_key_value_heads": 6}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8,
}
# Gemma scales its embedding by the root of this, which is kept in float32 by a model made in float32.
SQUARE = {"hidden_size": 36}
SLIDING = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}


def model(class_name: str, **changes: Any) -> Callable[[], nn.Module]:
    """Makes a small model of one class."""
    made = getattr(transformers, class_name)
    return lambda: made(made.config_class(**SIZES | changes))


def inside(*names: str, layers: int = 2) -> tuple[str, ...]:
    """The names of parameters inside each layer of a bare model, and of those around its layers."""
    return (
        "embed_tokens.weight",
        *(f"layers.{layer}.{name}.weight" for layer in range(layers) for name in names),
        "norm.weight",
    )


PRE_NORMS = ("input_layernorm", "post_attention_layernorm")

CASES = [
    Case("llama-model", model("LlamaModel", **MHA), inside(*PRE_NORMS), notes=("output",)),
    Case("llama-lm", model("LlamaForCausalLM", **GQA2), ()),
    Case("llama-lm-tied", model("LlamaForCausalLM", tie_word_embeddings=True, **GQA3), (), notes=("untie",)),
    Case(
        "llama-lm-biases",
        model("LlamaForCausalLM", attention_bias=True, mlp_bias=True, rope_parameters=LLAMA3, **GQA3),
        (),
    ),
    Case("llama-sequence", model("LlamaForSequenceClassification", head_dim=6, **MQA), ()),
    Case("llama-token", model("LlamaForTokenClassification", head_dim=10, **MHA), ("score.bias",)),
    Case("mistral-model", model("MistralModel", **MQA), inside(*PRE_NORMS)),
    Case("mistral-lm", model("MistralForCausalLM", sliding_window=4, head_dim=4, **GQA3), ()),
    Case("mistral-sequence", model("MistralForSequenceClassification", sliding_window=None, **GQA2), ()),
    Case("mistral-token", model("MistralForTokenClassification", **MHA), ("score.bias",)),
    Case("qwen2-model", model("Qwen2Model", **GQA2), inside(*PRE_NORMS)),
    Case("qwen2-lm", model("Qwen2ForCausalLM", **SLIDING, **GQA3), ()),
    Case("qwen2-lm-tied", model("Qwen2ForCausalLM", tie_word_embeddings=True, **MQA), (), notes=("untie",)),
    # Without a language-model head nothing is tied to the embedding, whatever the config says.
    Case("qwen2-sequence", model("Qwen2ForSequenceClassification", tie_word_embeddings=True, **MHA), ()),
    Case("qwen2-token", model("Qwen2ForTokenClassification", **GQA2), ("score.bias",)),
    Case("qwen3-model", model("Qwen3Model", head_dim=8, **MANY), inside(*PRE_NORMS)),
    Case("qwen3-lm", model("Qwen3ForCausalLM", head_dim=8, attention_bias=True, **MANY), ()),
    Case("qwen3-lm-tied", model("Qwen3ForCausalLM", head_dim=8, tie_word_embeddings=True, **SLIDING, **MHA), ()),
    Case("qwen3-sequence", model("Qwen3ForSequenceClassification", head_dim=6, **MQA), ()),
    Case("qwen3-token", model("Qwen3ForTokenClassification", head_dim=6, **GQA2), ("score.bias",)),
    Case(
        "gemma2-model",
        model("Gemma2Model", **SQUARE, head_dim=6, **GQA2),
        inside(*PRE_NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm"),
        notes=("output",),
    ),
    Case("gemma2-lm", model("Gemma2ForCausalLM", **SQUARE, head_dim=6, sliding_window=4, **GQA3), ()),
    Case(
        "gemma2-lm-untied",
        model("Gemma2ForCausalLM", **SQUARE, head_dim=8, tie_word_embeddings=False, attention_bias=True, **MHA),
        (),
    ),
    Case(
        "gemma2-sequence",
        model("Gemma2ForSequenceClassification", **SQUARE, head_dim=6, attn_logit_softcapping=None, **MQA),
        (),
    ),
    Case("gemma2-token", model("Gemma2ForTokenClassification", **SQUARE, head_dim=6, **GQA2), ("score.bias",)),
    Case("phi3-model", model("Phi3Model", **MHA), inside(*PRE_NORMS)),
    Case("phi3-lm", model("Phi3ForCausalLM", sliding_window=4, **GQA2), ()),
    Case(
        "phi3-lm-partial",
        model("Phi3ForCausalLM", rope_parameters={"rope_type": "default", "partial_rotary_factor": 0.75}, **MHA),
        (),
    ),
    Case("phi3-lm-tied", model("Phi3ForCausalLM", tie_word_embeddings=True, **GQA3), (), notes=("untie",)),
    Case(
        "phi3-sequence",
        model(
            "Phi3ForSequenceClassification",
            original_max_position_embeddings=8,
            rope_parameters={
                "rope_type": "longrope",
                "partial_rotary_factor": 0.5,
                "short_factor": [1.0, 1.5],
                "long_factor": [2.0, 3.0],
            },
            **MQA,
        ),
        (),
    ),
    Case("phi3-token", model("Phi3ForTokenClassification", **GQA3), ("score.bias",)),
    Case("olmo2-model", model("Olmo2Model", **MANY), inside("post_attention_layernorm", "post_feedforward_layernorm")),
    Case("olmo2-lm", model("Olmo2ForCausalLM", attention_bias=True, **GQA3), ()),
    Case("olmo2-lm-tied", model("Olmo2ForCausalLM", tie_word_embeddings=True, **MHA), ()),
    Case("olmo2-sequence", model("Olmo2ForSequenceClassification", **MQA), ()),
]
