"""BART: a post-norm encoder and decoder with shared embeddings (Lewis et al., 2020).

Encoder and decoder read the same embeddings, so their streams have one basis. Every sublayer's sum passes through a
LayerNorm before it is read again, so that basis admits permutations only.
"""

from typing import Any

from fusionlab.symmetry.axes import Along, Axis
from fusionlab.symmetry.blueprint import SymmetryError
from fusionlab.symmetry.builder import BlueprintBuilder, Normed
from fusionlab.symmetry.groups import Invertible, Permutation
from tests.symmetry.written.registry import architecture, class_head

HEADS = {
    "Model": "none",
    "ForConditionalGeneration": "lm",
    "ForSequenceClassification": "sequence",
    "ForQuestionAnswering": "qa",
    "ForCausalLM": "decoder",
}


@architecture("bart")
def bart(b: BlueprintBuilder, config: Any, class_name: str) -> None:
    """Describe a BART model."""
    head = class_head(class_name, "Bart", HEADS)
    alone = head == "decoder"
    if config.is_decoder and not alone:
        raise SymmetryError("bart as a decoder alone is described as BartForCausalLM only; expected is_decoder false")
    prefix = "" if head == "none" else "model."
    length = min(12, config.max_position_embeddings)

    # A sequence is classified by its end-of-sequence token; the decoder then reads the input, shifted.
    last = config.eos_token_id if head == "sequence" else None
    b.takes("input_ids", (length,), vocabulary=config.vocab_size, last=last)
    if alone:
        # Without it the cross-attention is skipped, with it its basis is the caller's.
        b.takes("encoder_hidden_states", (length - 1, config.d_model))
    elif head != "sequence":
        b.takes("decoder_input_ids", (length - 1,), vocabulary=config.vocab_size)
    residual: Along | None = None
    if head == "none":
        b.leaves_out("residual stream: it is this model's output, so its basis is not free")
    else:
        residual = b.space("residual", Permutation(config.d_model), role="residual")
        b.leaves_out("rotations of the residual stream: LayerNorm after each sublayer admits permutations only")
        both = ("encoder_hidden_states", "encoder_last_hidden_state", "decoder_hidden_states")
        for output in ("hidden_states",) if alone else both:
            b.gives(output, None, None, residual)

    if not alone:
        b.embedding(f"{prefix}shared", writes=residual)
    for stack in ("decoder",) if alone else ("encoder", "decoder"):
        for table in ("embed_tokens", "embed_positions"):
            b.embedding(f"{prefix}{stack}.{table}", writes=residual)
        b.norm(f"{prefix}{stack}.layernorm_embedding", residual)

    for layer in range(0 if alone else config.encoder_layers):
        at, name = f"{prefix}encoder.layers.{layer}", f"encoder.layers.{layer}"
        heads = attention(
            b, f"{at}.self_attn", name, layer, config.encoder_attention_heads, config.d_model, residual, residual
        )
        b.attention_maps(f"encoder_attentions.{layer}", heads)
        b.norm(f"{at}.self_attn_layer_norm", residual)
        _feed_forward(b, at, name, layer, config.encoder_ffn_dim, config.activation_function, residual)

    memory = None if alone else residual
    for layer in range(config.decoder_layers):
        at, name, cross = f"{prefix}decoder.layers.{layer}", f"decoder.layers.{layer}", f"cross.layers.{layer}"
        heads = attention(
            b, f"{at}.self_attn", name, layer, config.decoder_attention_heads, config.d_model, residual, residual
        )
        b.attention_maps(f"attentions.{layer}" if alone else f"decoder_attentions.{layer}", heads)
        b.norm(f"{at}.self_attn_layer_norm", residual)
        heads = attention(
            b, f"{at}.encoder_attn", cross, layer, config.decoder_attention_heads, config.d_model, residual, memory
        )
        b.attention_maps(f"cross_attentions.{layer}", heads)
        b.norm(f"{at}.encoder_attn_layer_norm", residual)
        _feed_forward(b, at, name, layer, config.decoder_ffn_dim, config.activation_function, residual)

    _head(b, head, residual)


def attention(
    b: BlueprintBuilder,
    at: str,
    name: str,
    layer: int,
    head_count: int,
    width: int,
    queries: Axis | Normed | None,
    memory: Axis | Normed | None,
    key_bias: bool = True,
) -> Along:
    """Describe the attention module of BART, which CLIP, SigLIP and Whisper have too.

    Args:
        at: the module's name.
        name: what its spaces' names begin with.
        layer: its index in its stack.
        head_count: how many heads it has.
        width: of all heads together.
        queries: what queries read; the module writes to the stream behind it.
        memory: what keys and values read.
        key_bias: whether keys have a bias.

    Returns:
        The axis of its heads.
    """
    heads = b.space(f"{name}.heads", Permutation(head_count), role="heads", layer=layer)
    inside = Invertible(width // head_count)
    qk = b.space(f"{name}.qk", inside, role="attention.qk", layer=layer, index=(heads.space,))
    vo = b.space(f"{name}.vo", inside, role="attention.vo", layer=layer, index=(heads.space,))
    b.linear(f"{at}.q_proj", reads=queries, writes=b.per(heads, qk))
    b.linear(f"{at}.k_proj", reads=memory, writes=b.per(heads, qk.dual()), bias=key_bias)
    b.linear(f"{at}.v_proj", reads=memory, writes=b.per(heads, vo))
    residual = queries.axis if isinstance(queries, Normed) else queries
    b.linear(f"{at}.out_proj", reads=b.per(heads, vo), writes=residual)
    return heads


def _head(b: BlueprintBuilder, head: str, residual: Axis | None) -> None:
    if head in ("lm", "decoder"):
        b.linear("lm_head", reads=residual, writes=None, bias=False)
    if head == "lm":
        b.parameter("final_logits_bias", None, None)
    elif head == "sequence":
        b.linear("classification_head.dense", reads=residual, writes=None)
        b.linear("classification_head.out_proj", reads=None, writes=None)
    elif head == "qa":
        b.linear("qa_outputs", reads=residual, writes=None)


def _feed_forward(
    b: BlueprintBuilder, at: str, name: str, layer: int, size: int, activation: str, residual: Axis | None
) -> None:
    units = b.hidden_units(f"{name}.ffn", size, layer, activation)
    b.linear(f"{at}.fc1", reads=residual, writes=units)
    b.linear(f"{at}.fc2", reads=units, writes=residual)
    b.norm(f"{at}.final_layer_norm", residual)
