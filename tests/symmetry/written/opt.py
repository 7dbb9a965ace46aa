"""OPT and Galactica: decoders with learned positions and ReLU (Zhang et al., 2022; Taylor et al., 2022).

The smallest but one (350m) is post-norm, all others pre-norm. Word embeddings narrower than the stream are a space of
their own, between the embedding and ``project_in`` and between ``project_out`` and the output embedding.
"""

from typing import Any

from fusionlab.symmetry.axes import Axis
from fusionlab.symmetry.builder import BlueprintBuilder, Normed
from fusionlab.symmetry.groups import Invertible, Orthogonal, Permutation
from tests.symmetry.written.registry import architecture, class_head

HEADS = {"Model": "none", "ForCausalLM": "lm", "ForSequenceClassification": "sequence"}


@architecture("opt")
def opt(b: BlueprintBuilder, config: Any, class_name: str) -> None:
    """Describe an OPT model."""
    head = class_head(class_name, "OPT", HEADS)
    decoder = "decoder" if head == "none" else "model.decoder"
    narrow = config.word_embed_proj_dim != config.hidden_size
    tied = head == "lm" and config.tie_word_embeddings
    pre_norm = config.do_layer_norm_before
    final_norm = pre_norm and not config._remove_final_layer_norm

    b.takes("input_ids", (12,), vocabulary=config.vocab_size)
    is_output = head == "none" and not narrow
    residual = None if is_output else _residual(b, config, centred=final_norm, tied=tied and not narrow)
    if is_output:
        b.leaves_out("residual stream: it is this model's output, so its basis is not free")
    words_in, words_out = _words(b, config, head, tied) if narrow else (residual, residual)
    if narrow:
        b.gives(f"hidden_states.{config.num_hidden_layers}", None, None, words_out)

    def norm(name: str) -> Axis | Normed | None:
        """A norm along the stream, and what the map behind it reads."""
        normed = b.norm(name, residual) if config.layer_norm_elementwise_affine else residual
        return normed if pre_norm else residual

    b.embedding(f"{decoder}.embed_tokens", writes=words_in)
    b.embedding(f"{decoder}.embed_positions", writes=residual)
    if narrow:
        b.linear(f"{decoder}.project_in", reads=words_in, writes=residual, bias=False)

    for layer in range(config.num_hidden_layers):
        at, bias = f"{decoder}.layers.{layer}", config.enable_bias
        heads = b.space(f"layers.{layer}.heads", Permutation(config.num_attention_heads), role="heads", layer=layer)
        b.attention_maps(f"attentions.{layer}", heads)
        width = Invertible(config.hidden_size // config.num_attention_heads)
        qk = b.space(f"layers.{layer}.qk", width, role="attention.qk", layer=layer, index=(heads.space,))
        vo = b.space(f"layers.{layer}.vo", width, role="attention.vo", layer=layer, index=(heads.space,))
        ffn = b.hidden_units(f"layers.{layer}.ffn", config.ffn_dim, layer, config.activation_function)

        read = norm(f"{at}.self_attn_layer_norm")
        b.linear(f"{at}.self_attn.k_proj", reads=read, writes=b.per(heads, qk.dual()), bias=bias)
        b.linear(f"{at}.self_attn.v_proj", reads=read, writes=b.per(heads, vo), bias=bias)
        b.linear(f"{at}.self_attn.q_proj", reads=read, writes=b.per(heads, qk), bias=bias)
        b.linear(f"{at}.self_attn.out_proj", reads=b.per(heads, vo), writes=residual, bias=bias)
        read = norm(f"{at}.final_layer_norm")
        b.linear(f"{at}.fc1", reads=read, writes=ffn, bias=bias)
        b.linear(f"{at}.fc2", reads=ffn, writes=residual, bias=bias)

    read = norm(f"{decoder}.final_layer_norm") if final_norm else residual
    if narrow:
        b.linear(f"{decoder}.project_out", reads=read, writes=words_out, bias=False)
        read = words_out
    if head == "lm":
        b.linear("lm_head", reads=read, writes=None, bias=False)
    elif head == "sequence":
        b.linear("score", reads=read, writes=None, bias=False)


def _residual(b: BlueprintBuilder, config: Any, centred: bool, tied: bool) -> Axis:
    """The residual stream, where it is not the model's output."""
    if config.do_layer_norm_before:
        residual = b.stream("residual", config.hidden_size, norm="layer", centred=centred, tied=tied)
    else:
        residual = b.space("residual", Permutation(config.hidden_size), role="residual")
        b.leaves_out("rotations of the residual stream: LayerNorm after each sublayer admits permutations only")
    b.gives("hidden_states", None, None, residual)
    return residual


def _words(b: BlueprintBuilder, config: Any, head: str, tied: bool) -> tuple[Axis, Axis | None]:
    """The spaces of narrow embeddings: of the words that go in, and of what the head reads."""
    size = config.word_embed_proj_dim
    if tied:
        # One matrix writes to the first and reads from the second, so both are one and length is kept.
        words = b.space("words", Orthogonal(size), role="embedding")
        return words, words
    words_in = b.space("words.in", Invertible(size), role="embedding")
    if head == "none":
        b.leaves_out("space of project_out: it is this model's output, so its basis is not free")
        return words_in, None
    return words_in, b.space("words.out", Invertible(size), role="embedding")
