"""Llama, Mistral, Qwen2 and Qwen3 (Touvron et al., 2023; Jiang et al., 2023; Yang et al., 2024 and 2025).

Pre-norm decoders with RMSNorm, rotary positions, grouped-query attention and gated feed-forward layers. What their
relatives share with them is here too: the frame around the layers, attention's axes.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from fusionlab.symmetry.axes import Along, Axis, Concat, Fixed, Per
from fusionlab.symmetry.blueprint import SymmetryError
from fusionlab.symmetry.builder import TIED, BlueprintBuilder
from fusionlab.symmetry.groups import Invertible, Permutation, Scale, Signs
from tests.symmetry.written.registry import architecture, class_head

HEADS = {
    "Model": "none",
    "ForCausalLM": "lm",
    "ForSequenceClassification": "sequence",
    "ForTokenClassification": "token",
}


@dataclass(frozen=True)
class Variant:
    """The traits in which one of these families differs from the others.

    Attributes:
        family: what its class names begin with.
        qkv_bias: whether query, key and value have biases; or the config's field that says so.
        out_bias: the same of attention's output.
        mlp_bias: the same of the feed-forward layer.
        head_norms: whether query and key of each head pass through an RMSNorm with gains.
    """

    family: str
    qkv_bias: bool | str = False
    out_bias: bool | str = False
    mlp_bias: bool | str = False
    head_norms: bool = False


VARIANTS = {
    "llama": Variant("Llama", qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias"),
    "mistral": Variant("Mistral"),
    "qwen2": Variant("Qwen2", qkv_bias=True),
    "qwen3": Variant("Qwen3", qkv_bias="attention_bias", out_bias="attention_bias", head_norms=True),
}


@architecture("llama", "mistral", "qwen2", "qwen3")
def llama(b: BlueprintBuilder, config: Any, class_name: str) -> None:
    """Describe a Llama, Mistral, Qwen2 or Qwen3 model."""
    variant = VARIANTS[config.model_type]
    frame = begin(b, config, class_name, variant.family)
    residual, width = frame.residual, head_width(config)
    qkv_bias, out_bias, mlp_bias = (
        getattr(config, bias) if isinstance(bias, str) else bias
        for bias in (variant.qkv_bias, variant.out_bias, variant.mlp_bias)
    )

    for layer in range(config.num_hidden_layers):
        at = f"{frame.prefix}layers.{layer}"
        attention = attention_axes(b, config, layer, rotary=None if variant.head_norms else width)
        gate, up = b.gated_units(f"layers.{layer}.ffn", config.intermediate_size, layer, config.hidden_act)

        normed = b.norm(f"{at}.input_layernorm", residual, bias=False)
        b.linear(f"{at}.self_attn.q_proj", reads=normed, writes=attention.query, bias=qkv_bias)
        b.linear(f"{at}.self_attn.k_proj", reads=normed, writes=attention.key, bias=qkv_bias)
        b.linear(f"{at}.self_attn.v_proj", reads=normed, writes=attention.value, bias=qkv_bias)
        b.linear(f"{at}.self_attn.o_proj", reads=attention.mixed, writes=residual, bias=out_bias)
        if variant.head_norms:
            gains = rotary_gains(b, layer, width, index=())
            b.parameter(f"{at}.self_attn.q_norm.weight", gains)
            b.parameter(f"{at}.self_attn.k_norm.weight", gains.dual())
        normed = b.norm(f"{at}.post_attention_layernorm", residual, bias=False)
        b.linear(f"{at}.mlp.gate_proj", reads=normed, writes=gate, bias=mlp_bias)
        b.linear(f"{at}.mlp.up_proj", reads=normed, writes=up, bias=mlp_bias)
        b.linear(f"{at}.mlp.down_proj", reads=up, writes=residual, bias=mlp_bias)

    end(b, config, frame)


@dataclass(frozen=True)
class Frame:
    """The surroundings of the layers: which head, the prefix of the names inside, and the residual stream."""

    head: str
    prefix: str
    residual: Axis | None


def begin(
    b: BlueprintBuilder,
    config: Any,
    class_name: str,
    family: str,
    endings: Collection[str] = HEADS.keys(),
    branch_norms: bool = False,
) -> Frame:
    """Input, residual stream and token embedding of a decoder.

    Args:
        endings: what may follow `family` in class names.
        branch_norms: whether what a branch writes to the stream passes through a norm with gains.
    """
    head = class_head(class_name, family, {ending: HEADS[ending] for ending in endings})
    if getattr(config, "is_heterogeneous", False):
        raise SymmetryError(f"{family} with a config of its own for each layer is not described; expected one for all")
    b.takes("input_ids", (12,), vocabulary=config.vocab_size)
    residual: Axis | None = None
    if head == "none":
        b.leaves_out("residual stream: it is this model's output, so its basis is not free")
    elif branch_norms:
        why = "the gains of the norm after each branch admit permutations and signs only"
        residual = b.signed("residual", config.hidden_size, why)
    elif head == "lm" and config.tie_word_embeddings:
        residual = b.signed("residual", config.hidden_size, TIED)
    else:
        residual = b.stream("residual", config.hidden_size, norm="rms")
    if residual is not None:
        b.gives("hidden_states", None, None, residual)
    prefix = "" if head == "none" else "model."
    b.embedding(f"{prefix}embed_tokens", writes=residual)
    return Frame(head, prefix, residual)


def end(b: BlueprintBuilder, config: Any, frame: Frame) -> None:
    """The last norm and the head of a decoder."""
    normed = b.norm(f"{frame.prefix}norm", frame.residual, bias=False)
    if frame.head == "lm":
        b.linear("lm_head", reads=normed, writes=None, bias=False)
    elif frame.head == "sequence":
        b.linear("score", reads=normed, writes=None, bias=False)
    elif frame.head == "token":
        b.linear("score", reads=normed, writes=None, bias=getattr(config, "token_classification_bias", True))


@dataclass(frozen=True)
class Attention:
    """The axes of one layer's grouped-query attention (Ainslie et al., 2023).

    Attributes:
        groups: the permutation of key-value heads, or None where there is one for all query heads.
        queries: the permutation of the query heads that share one, or None where each has its own.
        qk: what a query head's vectors run along; a key's along its dual.
        vo: what a value head's vectors run along.
    """

    groups: Along | None
    queries: Along | None
    qk: Axis
    vo: Along

    @property
    def index(self) -> tuple[str, ...]:
        """The index of a space with one copy for each key-value head."""
        return () if self.groups is None else (self.groups.space,)

    def by_group(self, inner: Axis) -> Axis:
        """An axis with one `inner` for each key-value head."""
        return inner if self.groups is None else Per(self.groups.space, self.groups.size, inner)

    def by_query(self, inner: Axis) -> Axis:
        """An axis with one `inner` for each query head."""
        return self.by_group(inner if self.queries is None else Per(self.queries.space, self.queries.size, inner))

    @property
    def query(self) -> Axis:
        return self.by_query(self.qk)

    @property
    def key(self) -> Axis:
        return self.by_group(self.qk.dual())

    @property
    def value(self) -> Axis:
        return self.by_group(self.vo)

    @property
    def mixed(self) -> Axis:
        """The axis that the output projection reads."""
        return self.by_query(self.vo)


def attention_axes(b: BlueprintBuilder, config: Any, layer: int, rotary: int | None) -> Attention:
    """Declare the spaces of one attention layer.

    What lies inside a key-value head comes before the permutation of the query heads that share it, so that matching
    knows it by then: its keys and values do not depend on the order of those.

    Args:
        rotary: how many coordinates of a head positions turn, in half-split pairs; None where norms of queries and
            keys with gains leave no basis free but for the signs of planes.
    """
    width, count = head_width(config), config.num_key_value_heads
    sharing = config.num_attention_heads // count
    at = f"layers.{layer}"
    groups = queries = None
    if count > 1 or sharing == 1:
        groups = b.space(f"{at}.heads", Permutation(count), role="heads", layer=layer)
    index = () if groups is None else (groups.space,)
    qk = _half_turns(b, layer, width, index) if rotary is None else _query(b, layer, width, rotary, index)
    vo = b.space(f"{at}.vo", Invertible(width), role="attention.vo", layer=layer, index=index)
    if groups is None:
        queries = b.space(f"{at}.heads", Permutation(sharing), role="heads", layer=layer)
    elif sharing > 1:
        queries = b.space(f"{at}.queries", Permutation(sharing), role="heads.queries", layer=layer, index=index)
    attention = Attention(groups, queries, qk, vo)
    b.attention_maps(f"attentions.{layer}", attention.by_query(Fixed(1)))
    return attention


def _query(b: BlueprintBuilder, layer: int, width: int, rotary: int, index: tuple[str, ...]) -> Axis:
    """The axis of a head's query, of which positions turn some coordinates at least."""
    if rotary < 2:
        raise SymmetryError(f"rotary positions on {rotary} coordinates of a head are not described; expected pairs")
    if layer == 0:
        b.leaves_out("query-key bases beyond rotary planes: only what commutes with the turns of positions is free")
    return b.rotary_query(f"layers.{layer}.qk", width, rotary, layer, index)


def _half_turns(b: BlueprintBuilder, layer: int, width: int, index: tuple[str, ...]) -> Axis:
    """Declare what is free in a head's query and key that pass through norms with gains: a sign for each plane."""
    signs = b.space(f"layers.{layer}.qk.signs", Signs(width // 2), role="attention.qk", layer=layer, index=index)
    return Concat(signs, signs)


def rotary_gains(b: BlueprintBuilder, layer: int, width: int, index: tuple[str, ...]) -> Axis:
    """Declare what is free in the gains of a head's query norm and, dually, of its key norm: a factor for each plane.

    Both coordinates of a plane are turned into each other, so they share it.
    """
    if layer == 0:
        b.leaves_out("query-key rotations: the gains of the norms of queries and keys fix the basis, up to signs")
    pairs = Scale(width // 2, signed=True)
    factor = b.space(f"layers.{layer}.qk.scale", pairs, role="attention.qk.scale", layer=layer, index=index)
    return Concat(factor, factor)


def head_width(config: Any) -> int:
    """Coordinates of one head."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
