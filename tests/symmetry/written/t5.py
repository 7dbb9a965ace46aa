"""T5 and T5 v1.1: pre-norm encoder and decoder with relative position biases (Raffel et al., 2020).

RMSNorm and no biases anywhere. Encoder and decoder read the same embeddings, so their streams have one basis. The
position biases of all self-attention layers of a stack are one table with a column for each head, so that one
permutation moves the heads of all of them; cross-attention has no such table and its heads are free in every layer.

The first T5 reads its output from the input embedding; T5 v1.1 has an output embedding of its own, so that its stream
may be rotated, although transformers 5 writes ``tie_word_embeddings`` into every config.
"""

from typing import Any

from fusionlab.symmetry.axes import Along, Axis
from fusionlab.symmetry.blueprint import SymmetryError
from fusionlab.symmetry.builder import TIED, BlueprintBuilder, Normed
from fusionlab.symmetry.groups import Invertible, Permutation, Scale
from tests.symmetry.written.registry import architecture, class_head

HEADS = {
    "Model": "none",
    "ForConditionalGeneration": "lm",
    "EncoderModel": "encoder",
    "ForSequenceClassification": "sequence",
    "ForTokenClassification": "token",
    "ForQuestionAnswering": "qa",
}


@architecture("t5")
def t5(b: BlueprintBuilder, config: Any, class_name: str) -> None:
    """Describe a T5 model."""
    head = class_head(class_name, "T5", HEADS)
    if config.is_decoder:
        raise SymmetryError("t5 as a decoder alone is not described; expected is_decoder false")
    prefix = "transformer." if head in ("sequence", "token") else ""
    # A sequence is classified by its end-of-sequence token; the decoder then reads the input, shifted.
    last = config.eos_token_id if head == "sequence" else None
    b.takes("input_ids", (12,), vocabulary=config.vocab_size, last=last)
    residual: Axis | None = None
    if head in ("none", "encoder"):
        b.leaves_out("residual stream: it is this model's output, so its basis is not free")
    else:
        # Only a language model's output can be tied to the input embedding.
        tied = head == "lm" and config.tie_word_embeddings
        residual = b.signed("residual", config.d_model, TIED) if tied else b.stream("residual", config.d_model, "rms")
        both = ("encoder_hidden_states", "encoder_last_hidden_state", "decoder_hidden_states")
        for output in ("hidden_states",) if head == "token" else both:
            b.gives(output, None, None, residual)

    b.embedding(f"{prefix}shared", writes=residual)
    if head in ("encoder", "token"):
        encoded = _stack(b, config, prefix, "encoder", config.num_layers, residual, "attentions")
        if head == "token":
            b.linear("classifier", reads=encoded, writes=None)
        return
    if head != "sequence":
        b.takes("decoder_input_ids", (11,), vocabulary=config.vocab_size)
    encoded = _stack(b, config, prefix, "encoder", config.num_layers, residual, "encoder_attentions")
    decoded = _stack(b, config, prefix, "decoder", config.num_decoder_layers, residual, "decoder_attentions", encoded)
    if head == "lm":
        b.linear("lm_head", reads=decoded, writes=None, bias=False)
    elif head == "sequence":
        b.linear("classification_head.dense", reads=decoded, writes=None)
        b.linear("classification_head.out_proj", reads=None, writes=None)
    elif head == "qa":
        b.linear("qa_outputs", reads=decoded, writes=None)


def _stack(
    b: BlueprintBuilder,
    config: Any,
    prefix: str,
    stack: str,
    layers: int,
    residual: Axis | None,
    maps: str,
    memory: Normed | None = None,
) -> Normed:
    """Describe the encoder, or the decoder if there is a memory to attend to; return what it gives."""
    b.embedding(f"{prefix}{stack}.embed_tokens", writes=residual)
    heads = b.space(f"{stack}.heads", Permutation(config.num_heads), role="heads")
    b.parameter(f"{prefix}{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight", None, heads)
    for layer in range(layers):
        at = f"{prefix}{stack}.block.{layer}.layer"
        name, cross = f"{stack}.layers.{layer}", f"cross.layers.{layer}"
        normed = b.norm(f"{at}.0.layer_norm", residual, bias=False)
        _attention(b, config, f"{at}.0.SelfAttention", name, layer, heads, normed, normed)
        b.attention_maps(f"{maps}.{layer}", heads)
        if memory is not None:
            free = b.space(f"{cross}.heads", Permutation(config.num_heads), role="heads", layer=layer)
            normed = b.norm(f"{at}.1.layer_norm", residual, bias=False)
            _attention(b, config, f"{at}.1.EncDecAttention", cross, layer, free, normed, memory)
            b.attention_maps(f"cross_attentions.{layer}", free)
        _feed_forward(b, config, f"{at}.{1 if memory is None else 2}", f"{name}.ffn", layer, residual)
    return b.norm(f"{prefix}{stack}.final_layer_norm", residual, bias=False)


def _attention(
    b: BlueprintBuilder, config: Any, at: str, name: str, layer: int, heads: Along, queries: Normed, memory: Normed
) -> None:
    qk = b.space(f"{name}.qk", Invertible(config.d_kv), role="attention.qk", layer=layer, index=(heads.space,))
    vo = b.space(f"{name}.vo", Invertible(config.d_kv), role="attention.vo", layer=layer, index=(heads.space,))
    b.linear(f"{at}.q", reads=queries, writes=b.per(heads, qk), bias=False)
    b.linear(f"{at}.k", reads=memory, writes=b.per(heads, qk.dual()), bias=False)
    b.linear(f"{at}.v", reads=memory, writes=b.per(heads, vo), bias=False)
    b.linear(f"{at}.o", reads=b.per(heads, vo), writes=queries.axis, bias=False)


def _feed_forward(b: BlueprintBuilder, config: Any, at: str, name: str, layer: int, residual: Axis | None) -> None:
    normed = b.norm(f"{at}.layer_norm", residual, bias=False)
    if not config.is_gated_act:
        units = b.hidden_units(name, config.d_ff, layer, config.dense_act_fn)
        b.linear(f"{at}.DenseReluDense.wi", reads=normed, writes=units, bias=False)
        b.linear(f"{at}.DenseReluDense.wo", reads=units, writes=residual, bias=False)
        return
    gates = b.space(name, Permutation(config.d_ff), role="ffn", layer=layer)
    factor = b.space(f"{name}.scale", Scale(1, signed=True), role="ffn.scale", layer=layer, index=(gates.space,))
    b.linear(f"{at}.DenseReluDense.wi_0", reads=normed, writes=gates, bias=False)
    b.linear(f"{at}.DenseReluDense.wi_1", reads=normed, writes=b.per(gates, factor), bias=False)
    b.linear(f"{at}.DenseReluDense.wo", reads=b.per(gates, factor), writes=residual, bias=False)
