"""GPT-NeoX and Pythia, GPT-J: pre-norm decoders with rotary positions on a part of each head.

GPT-NeoX (Black et al., 2022; Biderman et al., 2023, "Pythia") turns half-split pairs and lays query, key and value out
head by head in one map; GPT-J (Wang and Komatsuzaki, 2021) turns interleaved pairs. Whether attention and feed-forward
layer read the same stream (parallel) or one after the other makes no difference to the symmetry.
"""

from typing import Any

from fusionlab.symmetry.axes import Axis, Concat
from fusionlab.symmetry.blueprint import SymmetryError
from fusionlab.symmetry.builder import BlueprintBuilder
from fusionlab.symmetry.groups import Invertible, Permutation
from tests.symmetry.written.registry import architecture, class_head

HEADS = {
    "Model": "none",
    "ForCausalLM": "lm",
    "ForSequenceClassification": "sequence",
    "ForTokenClassification": "token",
}


@architecture("gpt_neox")
def gpt_neox(b: BlueprintBuilder, config: Any, class_name: str) -> None:
    """Describe a GPT-NeoX or Pythia model."""
    head = class_head(class_name, "GPTNeoX", HEADS)
    prefix = "" if head == "none" else "gpt_neox."
    width = config.hidden_size // config.num_attention_heads
    if config.rope_parameters["rope_type"] == "proportional":
        raise SymmetryError("gpt_neox with rope_type 'proportional' is not described; expected partial rotary")
    rotary = int(width * config.rope_parameters.get("partial_rotary_factor", 1.0))

    residual = _residual(b, head, config)
    b.embedding(f"{prefix}embed_in", writes=residual)

    for layer in range(config.num_hidden_layers):
        at = f"{prefix}layers.{layer}"
        heads = b.space(f"layers.{layer}.heads", Permutation(config.num_attention_heads), role="heads", layer=layer)
        b.attention_maps(f"attentions.{layer}", heads)
        qk = b.rotary_query(f"layers.{layer}.qk", width, rotary, layer, (heads.space,), interleaved=False)
        vo = b.space(f"layers.{layer}.vo", Invertible(width), role="attention.vo", layer=layer, index=(heads.space,))
        ffn = b.hidden_units(f"layers.{layer}.ffn", config.intermediate_size, layer, config.hidden_act)

        fused = b.per(heads, Concat(qk, qk.dual(), vo))
        normed = b.norm(f"{at}.input_layernorm", residual)
        b.linear(f"{at}.attention.query_key_value", reads=normed, writes=fused, bias=config.attention_bias)
        b.linear(f"{at}.attention.dense", reads=b.per(heads, vo), writes=residual, bias=config.attention_bias)
        normed = b.norm(f"{at}.post_attention_layernorm", residual)
        b.linear(f"{at}.mlp.dense_h_to_4h", reads=normed, writes=ffn)
        b.linear(f"{at}.mlp.dense_4h_to_h", reads=ffn, writes=residual)

    normed = b.norm(f"{prefix}final_layer_norm", residual)
    if head == "lm":
        b.linear("lm_head", reads=normed, writes=None, bias=False)
    elif head == "sequence":
        b.linear("score", reads=normed, writes=None, bias=False)
    elif head == "token":
        b.linear("classifier", reads=normed, writes=None)


@architecture("gptj")
def gptj(b: BlueprintBuilder, config: Any, class_name: str) -> None:
    """Describe a GPT-J model."""
    head = class_head(class_name, "GPTJ", {ending: name for ending, name in HEADS.items() if name != "token"})
    prefix = "" if head == "none" else "transformer."
    width = config.hidden_size // config.num_attention_heads

    residual = _residual(b, head, config)
    b.embedding(f"{prefix}wte", writes=residual)

    for layer in range(config.num_hidden_layers):
        at = f"{prefix}h.{layer}"
        heads = b.space(f"layers.{layer}.heads", Permutation(config.num_attention_heads), role="heads", layer=layer)
        b.attention_maps(f"attentions.{layer}", heads)
        qk = b.rotary_query(f"layers.{layer}.qk", width, config.rotary_dim, layer, (heads.space,), interleaved=True)
        vo = b.space(f"layers.{layer}.vo", Invertible(width), role="attention.vo", layer=layer, index=(heads.space,))
        inner = 4 * config.hidden_size if config.n_inner is None else config.n_inner
        ffn = b.hidden_units(f"layers.{layer}.ffn", inner, layer, config.activation_function)

        normed = b.norm(f"{at}.ln_1", residual)
        b.linear(f"{at}.attn.k_proj", reads=normed, writes=b.per(heads, qk.dual()), bias=False)
        b.linear(f"{at}.attn.v_proj", reads=normed, writes=b.per(heads, vo), bias=False)
        b.linear(f"{at}.attn.q_proj", reads=normed, writes=b.per(heads, qk), bias=False)
        b.linear(f"{at}.attn.out_proj", reads=b.per(heads, vo), writes=residual, bias=False)
        b.linear(f"{at}.mlp.fc_in", reads=normed, writes=ffn)
        b.linear(f"{at}.mlp.fc_out", reads=ffn, writes=residual)

    normed = b.norm(f"{prefix}ln_f", residual)
    if head == "lm":
        b.linear("lm_head", reads=normed, writes=None)
    elif head == "sequence":
        b.linear("score", reads=normed, writes=None, bias=False)


def _residual(b: BlueprintBuilder, head: str, config: Any) -> Axis | None:
    """The model's input, what it leaves out, and its residual stream, None where the stream is its output."""
    b.leaves_out("query-key bases beyond rotary planes: positions turn them, so only what commutes with that is free")
    b.takes("input_ids", (12,), vocabulary=config.vocab_size)
    if head == "none":
        b.leaves_out("residual stream: it is this model's output, so its basis is not free")
        return None
    residual = b.stream("residual", config.hidden_size, norm="layer", tied=head == "lm" and config.tie_word_embeddings)
    b.gives("hidden_states", None, None, residual)
    return residual
