"""timm's VisionTransformer with all that it can be built from: ViT, DeiT (distilled, III), DINOv2, SigLIP and more.

Dosovitskiy et al., "An image is worth 16x16 words" (2021); Touvron et al., "DeiT III" (2022); Zhai et al., "Scaling
vision transformers" (2022) for pooling by attention.

A timm model has no config, of which inference would make a small model of the same structure, and says nothing of its
inputs: what it is made of is read off its modules' types and attributes.
"""

from typing import Any, Literal

from torch import nn

from fusionlab.symmetry.architectures.descriptions import DESCRIBED
from fusionlab.symmetry.axes import Along, Axis, Concat, Fixed
from fusionlab.symmetry.blueprint import SymmetryError
from fusionlab.symmetry.builder import BlueprintBuilder, Normed
from fusionlab.symmetry.groups import Invertible, Permutation, Scale

NORMS: dict[str, Literal["layer", "rms"]] = {
    "LayerNorm": "layer",
    "LayerNormFp32": "layer",
    "RmsNorm": "rms",
    "RmsNormFp32": "rms",
}
FEED_FORWARDS = ("Mlp", "GluMlp", "SwiGLU")


@DESCRIBED.of("timm.VisionTransformer", "timm.VisionTransformerDistilled")
def timm_vit(b: BlueprintBuilder, model: nn.Module, class_name: str) -> None:
    """Describe timm's ViT and DeiT from a model's attributes (a model on the meta device will do)."""
    m: Any = model
    _refuse_variants(m, class_name)
    b.takes("x", (m.patch_embed.proj.in_channels, *m.patch_embed.img_size))
    residual = _stream(b, m)

    for token in ("cls_token", "dist_token", "reg_token", "pos_embed"):
        if getattr(m, token, None) is not None:
            b.parameter(token, None, None, residual)
    b.parameter("patch_embed.proj.weight", residual, None, None, None)
    if _has_bias(m.patch_embed.proj):
        b.parameter("patch_embed.proj.bias", residual)
    _norm(b, "patch_embed.norm", m.patch_embed.norm, residual)
    _norm(b, "norm_pre", m.norm_pre, residual)

    for layer, block in enumerate(m.blocks):
        at = f"blocks.{layer}"
        normed = _norm(b, f"{at}.norm1", block.norm1, residual)
        _attention(b, f"{at}.attn", layer, block.attn, normed, residual)
        _layer_scale(b, f"{at}.ls1", block.ls1, f"{at}.attn.proj", residual)
        normed = _norm(b, f"{at}.norm2", block.norm2, residual)
        _feed_forward(b, f"{at}.mlp", f"layers.{layer}.ffn", layer, block.mlp, normed, residual)
        _layer_scale(b, f"{at}.ls2", block.ls2, f"{at}.mlp.fc2", residual)
    if any(_there(block.attn.q_norm) for block in m.blocks):
        b.leaves_out("attention.qk: the norms of queries and keys have gains that all heads share")
    if any(_there(block.attn.norm) for block in m.blocks):
        b.leaves_out("rotations of attention.vo: what the heads return is normed before it is projected")

    pooled, source = residual, _norm(b, "norm", m.norm, residual)
    if m.attn_pool is not None:
        pooled = source = _attention_pool(b, m, source)
    source = _norm(b, "fc_norm", m.fc_norm, pooled) if _there(m.fc_norm) else source
    for head in ("head", "head_dist"):
        if isinstance(getattr(m, head, None), nn.Linear):
            b.linear(head, reads=source, writes=None)


def _stream(b: BlueprintBuilder, m: Any) -> Along | None:
    """The residual stream."""
    if m.attn_pool is None and not isinstance(m.head, nn.Linear):
        b.leaves_out("residual stream: it is this model's output, so its basis is not free")
        return None
    reason = ""
    if _there(m.norm_pre) or _there(m.patch_embed.norm):
        reason = "what a norm with a gain returns is this stream"
    elif m.attn_pool is None and m.global_pool in ("max", "avgmax"):
        reason = "the largest value of each feature over all tokens is pooled"
    if reason:
        b.leaves_out(f"rotations of the residual stream: {reason}")
        return b.space("residual", Permutation(m.embed_dim), role="residual")
    ends_in_norm = _there(m.norm) or (m.attn_pool is None and _there(m.fc_norm))
    return b.stream("residual", m.embed_dim, norm=NORMS[type(m.blocks[0].norm1).__name__], centred=ends_in_norm)


def _attention(
    b: BlueprintBuilder, at: str, layer: int, attention: Any, reads: Axis | Normed | None, writes: Axis | None
) -> None:
    """Self-attention with one projection for queries, keys and values."""
    heads = b.space(f"layers.{layer}.heads", Permutation(attention.num_heads), role="heads", layer=layer)
    width = attention.head_dim
    query: Axis = Fixed(width)
    if not _there(attention.q_norm):
        query = b.space(f"layers.{layer}.qk", Invertible(width), role="attention.qk", layer=layer, index=(heads.space,))
    inside = Permutation(width) if _there(attention.norm) else Invertible(width)
    vo = b.space(f"layers.{layer}.vo", inside, role="attention.vo", layer=layer, index=(heads.space,))
    fused = Concat(b.per(heads, query), b.per(heads, query.dual()), b.per(heads, vo))
    b.linear(f"{at}.qkv", reads=reads, writes=fused, bias=_has_bias(attention.qkv))
    _norm(b, f"{at}.q_norm", attention.q_norm, None)
    _norm(b, f"{at}.k_norm", attention.k_norm, None)
    _norm(b, f"{at}.norm", attention.norm, b.per(heads, vo))
    b.linear(f"{at}.proj", reads=b.per(heads, vo), writes=writes, bias=_has_bias(attention.proj))


def _feed_forward(
    b: BlueprintBuilder,
    at: str,
    name: str,
    layer: int | None,
    mlp: Any,
    reads: Axis | Normed | None,
    writes: Axis | None,
) -> None:
    """A feed-forward layer, plain or gated; a norm before its last map leaves its units no factors of their own."""
    normed, kind, last = _there(mlp.norm), type(mlp).__name__, mlp.fc2
    if kind == "Mlp":
        activation = "" if normed else type(mlp.act).__name__.lower()
        units = b.hidden_units(name, last.in_features, layer, activation)
        b.linear(f"{at}.fc1", reads=reads, writes=units, bias=_has_bias(mlp.fc1))
    else:
        gates = b.space(name, Permutation(last.in_features), role="ffn", layer=layer)
        units = gates
        if not normed:
            factor = b.space(
                f"{name}.scale", Scale(1, signed=True), role="ffn.scale", layer=layer, index=(gates.space,)
            )
            units = b.per(gates, factor)
        if kind == "SwiGLU":
            b.linear(f"{at}.fc1_g", reads=reads, writes=gates, bias=_has_bias(mlp.fc1_g))
            b.linear(f"{at}.fc1_x", reads=reads, writes=units, bias=_has_bias(mlp.fc1_x))
        else:
            halves = (units, gates) if mlp.gate_last else (gates, units)
            b.linear(f"{at}.fc1", reads=reads, writes=Concat(*halves), bias=_has_bias(mlp.fc1))
    _norm(b, f"{at}.norm", mlp.norm, units)
    b.linear(f"{at}.fc2", reads=units, writes=writes, bias=_has_bias(last))


def _attention_pool(b: BlueprintBuilder, m: Any, reads: Axis | Normed | None) -> Along | None:
    """Pooling by the attention of one learned query; what it returns is a residual stream of its own."""
    pool = m.attn_pool
    pooled: Along | None = None
    if isinstance(m.head, nn.Linear):
        kind = NORMS[type(pool.norm).__name__]
        pooled = b.stream("pool.residual", m.embed_dim, norm=kind, centred=_there(m.fc_norm))
    else:
        b.leaves_out("pool.residual: it is this model's output, so its basis is not free")
    heads = b.space("pool.heads", Permutation(pool.num_heads), role="heads")
    qk = b.space("pool.qk", Invertible(pool.head_dim), role="attention.qk", index=(heads.space,))
    vo = b.space("pool.vo", Invertible(pool.head_dim), role="attention.vo", index=(heads.space,))
    b.leaves_out("basis of the pooling query: it is one vector, of which only the projection is used")
    b.parameter("attn_pool.latent", None, None, None)
    b.linear("attn_pool.q", reads=None, writes=b.per(heads, qk), bias=_has_bias(pool.q))
    keys_and_values = Concat(b.per(heads, qk.dual()), b.per(heads, vo))
    b.linear("attn_pool.kv", reads=reads, writes=keys_and_values, bias=_has_bias(pool.kv))
    b.linear("attn_pool.proj", reads=b.per(heads, vo), writes=pooled, bias=_has_bias(pool.proj))
    normed = _norm(b, "attn_pool.norm", pool.norm, pooled)
    _feed_forward(b, "attn_pool.mlp", "pool.ffn", None, pool.mlp, normed, pooled)
    return pooled


def _norm(b: BlueprintBuilder, name: str, norm: nn.Module, axis: Axis | None) -> Axis | Normed | None:
    """The axis that a norm returns, or that it would have read where there is none."""
    return b.norm(name, axis, bias=_has_bias(norm)) if _there(norm) else axis


def _layer_scale(b: BlueprintBuilder, name: str, scale: nn.Module, writer: str, axis: Axis | None) -> None:
    """The layer scale behind a linear map, if there is one."""
    if _there(scale):
        b.layer_scale(f"{name}.gamma", axis, writer)


def _there(module: nn.Module) -> bool:
    return not isinstance(module, nn.Identity)


def _has_bias(module: Any) -> bool:
    return getattr(module, "bias", None) is not None


def _refuse_variants(m: Any, class_name: str) -> None:
    """Refuse the members of timm's family that compute something else than what is described here."""
    _refuse_other("embedding", m.patch_embed, ("PatchEmbed",))
    for block in m.blocks:
        _refuse_other("block", block, ("Block",))
        _refuse_other("attention", block.attn, ("Attention",))
        _refuse_other("feed-forward layer", block.mlp, FEED_FORWARDS)
        if block.attn.gate is not None:
            raise SymmetryError("timm's gated attention is not described; expected attention without a gate")
    if m.attn_pool is not None:
        _refuse_other("pooling", m.attn_pool, ("AttentionPoolLatent",))
    if class_name == "VisionTransformerDistilled" and _there(m.fc_norm):
        raise SymmetryError("timm's distilled model never uses its fc_norm; expected one without it")
    for norm in [m.blocks[0].norm1] if m.attn_pool is None else [m.blocks[0].norm1, m.attn_pool.norm]:
        _refuse_other("norm", norm, tuple(NORMS))
        if norm.weight is None:
            raise SymmetryError("timm's norms without gains are not described; expected norms with gains")


def _refuse_other(what: str, module: nn.Module, known: tuple[str, ...]) -> None:
    """Refuse a part that is of none of the known types."""
    if type(module).__name__ not in known:
        raise SymmetryError(f"timm's {what} {type(module).__name__} is not described; expected {' or '.join(known)}")
