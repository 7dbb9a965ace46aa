"""DeBERTa, DeBERTa-v2 and v3: post-norm encoders with disentangled attention (He et al., 2021; He et al., 2023).

A score is the sum of content-content, content-position and position-content products. Position keys and queries
pass through the content's own projections (``share_att_key``) or through some of their own; either way they live in
the heads' Q-K space, which keeps its whole group. In the first case position embeddings share the basis of the
residual stream; in the second only those other projections read them, so that they have a basis of their own.
"""

from typing import Any

from fusionlab.symmetry.axes import Axis, Concat
from fusionlab.symmetry.blueprint import SymmetryError
from fusionlab.symmetry.builder import BlueprintBuilder, Normed
from fusionlab.symmetry.groups import Invertible, Permutation
from tests.symmetry.written.bert import attention_spaces, post_norm_stream, prediction_units
from tests.symmetry.written.registry import architecture, class_head, is_before

HEADS = {
    "Model": "none",
    "ForSequenceClassification": "sequence",
    "ForTokenClassification": "token",
    "ForQuestionAnswering": "question",
    "ForMaskedLM": "masked",
}
FAMILIES = {"deberta": "Deberta", "deberta-v2": "DebertaV2"}


@architecture("deberta", "deberta-v2")
def deberta(b: BlueprintBuilder, config: Any, class_name: str) -> None:
    """Describe a DeBERTa model of the first version, or of the second and third, which share their code."""
    head = class_head(class_name, FAMILIES[config.model_type], HEADS)
    _refuse_variants(config, head)
    prefix = "" if head == "none" else "deberta."

    b.takes("input_ids", (12,), vocabulary=config.vocab_size)
    residual = post_norm_stream(b, config.hidden_size, is_output=head == "none")
    # The newer masked LM head has no output embedding of its own: it multiplies by the input embedding.
    tied = head == "masked" and (config.tie_word_embeddings or not config.legacy)
    words = _embeddings(b, config, f"{prefix}embeddings", residual, tied)
    positions = _positions(b, config, f"{prefix}encoder", residual)

    for layer in range(config.num_hidden_layers):
        at = f"{prefix}encoder.layer.{layer}"
        values = _attention(b, config, f"{at}.attention.self", layer, residual, positions)
        b.linear(f"{at}.attention.output.dense", reads=values, writes=residual)
        b.norm(f"{at}.attention.output.LayerNorm", residual)
        ffn = b.hidden_units(f"layers.{layer}.ffn", config.intermediate_size, layer, config.hidden_act)
        b.linear(f"{at}.intermediate.dense", reads=residual, writes=ffn)
        b.linear(f"{at}.output.dense", reads=ffn, writes=residual)
        b.norm(f"{at}.output.LayerNorm", residual)

    if config.model_type != "deberta" and getattr(config, "conv_kernel_size", 0) > 0:
        # It mixes neighbouring tokens: reads the embeddings' sum, and writes to the stream behind the first layer.
        conv = f"{prefix}encoder.conv.conv"
        b.reads(f"{conv}.weight", 1, f"{conv}.bias", residual)
        b.parameter(f"{conv}.weight", residual, residual, None)
        b.parameter(f"{conv}.bias", residual)
        b.norm(f"{prefix}encoder.conv.LayerNorm", residual)

    if head == "masked":
        _masked_head(b, config, residual, words, tied)
    elif head == "sequence":
        b.linear("pooler.dense", reads=residual, writes=None)
        b.linear("classifier", reads=None, writes=None)
    elif head != "none":
        b.linear("classifier" if head == "token" else "qa_outputs", reads=residual, writes=None)


def _embeddings(b: BlueprintBuilder, config: Any, at: str, residual: Axis | None, tied: bool) -> Axis | None:
    """Describe the embeddings; returns the basis of their tables."""
    size = getattr(config, "embedding_size", config.hidden_size)
    words = residual
    if size != config.hidden_size:
        # Nothing lies between the tables and the projection; a tied output embedding reads a LayerNorm, though.
        words = b.space("embedding", Permutation(size) if tied else Invertible(size), role="residual")
        b.linear(f"{at}.embed_proj", reads=words, writes=residual, bias=False)
        if tied:
            b.leaves_out("rotations of embedding: a LayerNorm writes what the tied output embedding reads")
    b.embedding(f"{at}.word_embeddings", writes=words)
    if getattr(config, "position_biased_input", True):
        b.embedding(f"{at}.position_embeddings", writes=words)
    if config.type_vocab_size > 0:
        b.embedding(f"{at}.token_type_embeddings", writes=words)
    b.norm(f"{at}.LayerNorm", residual)
    return words


def _positions(b: BlueprintBuilder, config: Any, at: str, residual: Axis | None) -> Axis | Normed | None:
    """Describe the embeddings of relative positions; returns what their projections read."""
    normed = config.model_type != "deberta" and "layer_norm" in _words(getattr(config, "norm_rel_ebd", "none"))
    positions: Axis | None = None
    if _shares_keys(config):
        positions = residual
    elif _projected(config) and normed:
        positions = b.stream("positions", config.hidden_size, norm="layer")
    elif _projected(config):
        positions = b.space("positions", Invertible(config.hidden_size), role="residual")
    if getattr(config, "relative_attention", False):
        b.embedding(f"{at}.rel_embeddings", writes=positions)
        if config.model_type != "deberta" and "p2c" in (config.pos_att_type or ()):
            b.leaves_out("translations of the key bias: position-to-content scores see it")
    return b.norm(f"{at}.LayerNorm", positions) if normed else positions


def _attention(
    b: BlueprintBuilder, config: Any, at: str, layer: int, residual: Axis | None, positions: Axis | Normed | None
) -> Axis:
    """Describe one layer's projections; returns what its values write."""
    heads, qk, vo = attention_spaces(b, layer, config.num_attention_heads, config.hidden_size)
    b.attention_maps(f"attentions.{layer}", heads)
    if getattr(config, "relative_attention", False) and "p2c" in (config.pos_att_type or ()):
        b.sees_key_bias(qk)
    queries, keys, values = b.per(heads, qk), b.per(heads, qk.dual()), b.per(heads, vo)
    fused = config.model_type == "deberta"
    if fused:
        b.linear(f"{at}.in_proj", reads=residual, writes=b.per(heads, Concat(qk, qk.dual(), vo)), bias=False)
        b.parameter(f"{at}.q_bias", queries)
        b.parameter(f"{at}.v_bias", values)
    else:
        b.linear(f"{at}.query_proj", reads=residual, writes=queries)
        b.linear(f"{at}.key_proj", reads=residual, writes=keys)
        b.linear(f"{at}.value_proj", reads=residual, writes=values)
    if "c2p" in _projected(config):
        b.linear(f"{at}.{'pos_proj' if fused else 'pos_key_proj'}", reads=positions, writes=keys, bias=not fused)
    if "p2c" in _projected(config):
        b.linear(f"{at}.{'pos_q_proj' if fused else 'pos_query_proj'}", reads=positions, writes=queries)
    return values


def _masked_head(b: BlueprintBuilder, config: Any, residual: Axis | None, words: Axis | None, tied: bool) -> None:
    """Describe the head for masked language modelling, the older (``legacy``) or the newer one."""
    hidden = prediction_units(b, words, getattr(config, "embedding_size", config.hidden_size), tied)
    at = "cls.predictions" if config.legacy else "lm_predictions.lm_head"
    transform = f"{at}.transform" if config.legacy else at
    b.linear(f"{transform}.dense", reads=residual, writes=hidden)
    normed = b.norm(f"{transform}.LayerNorm", hidden)
    if config.legacy:
        b.linear(f"{at}.decoder", reads=normed, writes=None)
    elif is_before("transformers", "5.20"):
        # The input embedding, under a name of the head's own.
        b.embedding(at, writes=words)
    b.parameter(f"{at}.bias", None)


def _projected(config: Any) -> tuple[str, ...]:
    """The kinds of position attention that have a projection of their own."""
    if not getattr(config, "relative_attention", False) or _shares_keys(config):
        return ()
    return tuple(kind for kind in ("c2p", "p2c") if kind in (config.pos_att_type or ()))


def _shares_keys(config: Any) -> bool:
    return config.model_type != "deberta" and getattr(config, "share_att_key", False)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.lower().split("|")]


def _refuse_variants(config: Any, head: str) -> None:
    """Refuse options that change what a model computes in ways that are not described."""
    family, hidden = config.model_type, config.hidden_size
    if family == "deberta" and getattr(config, "talking_head", False):
        raise SymmetryError(f"{family} with talking_head is not described; expected heads that do not mix")
    if family != "deberta":
        width = getattr(config, "attention_head_size", hidden // config.num_attention_heads)
        if width * config.num_attention_heads != hidden:
            raise SymmetryError(f"{family} has attention_head_size {width}; expected hidden_size over the heads")
        groups = getattr(config, "conv_groups", 1)
        if getattr(config, "conv_kernel_size", 0) > 0 and groups != 1:
            raise SymmetryError(f"{family} has conv_groups {groups}, which is not described; expected 1")
    if head == "sequence" and config.pooler_hidden_size != hidden:
        raise SymmetryError(f"{family} has pooler_hidden_size {config.pooler_hidden_size}; expected {hidden}")
    size = getattr(config, "embedding_size", hidden)
    if head == "masked" and not config.legacy and size != hidden:
        raise SymmetryError(f"{family} has embedding_size {size} under the newer masked LM head; expected {hidden}")
