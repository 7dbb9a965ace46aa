"""Vision transformers: transformers' ViT and timm's VisionTransformer and distilled DeiT (Dosovitskiy et al., 2021).

Pre-norm encoders. As the parameters stand, LayerNorm's gains and its mean subtraction leave permutations of the
residual stream.
"""

from typing import Any

from torch import nn

from fusionlab.symmetry.architectures import architecture, class_head
from fusionlab.symmetry.axes import Along, Axis, Concat
from fusionlab.symmetry.blueprint import Blueprint, BlueprintBuilder, SymmetryError
from fusionlab.symmetry.groups import Invertible, Permutation

HEADS = {"Model": "none", "ForImageClassification": "classifier"}
FOLDED_RESIDUAL = "rotations of the residual stream: the gains of its LayerNorms are not folded into the readers"


@architecture("vit")
def vit(config: Any, class_name: str) -> Blueprint:
    """Describe transformers' ViT."""
    head = class_head(class_name, "ViT", HEADS)
    prefix = "" if head == "none" else "vit."
    b = BlueprintBuilder("vit")
    height, width = _pair(config.image_size)
    b.takes("pixel_values", (config.num_channels, height, width))
    residual: Axis | None = None
    if head == "none":
        b.leaves_out("residual stream: it is this model's output, so its basis is not free")
    else:
        residual = b.space("residual", Permutation(config.hidden_size), role="residual")
        b.leaves_out(FOLDED_RESIDUAL)

    b.parameter(f"{prefix}embeddings.cls_token", None, None, residual)
    b.parameter(f"{prefix}embeddings.position_embeddings", None, None, residual)
    patches = f"{prefix}embeddings.patch_embeddings.projection"
    b.parameter(f"{patches}.weight", residual, None, None, None)
    b.parameter(f"{patches}.bias", residual)

    for layer in range(config.num_hidden_layers):
        at = f"{prefix}layers.{layer}"
        heads, qk, vo, ffn = _layer_spaces(
            b, layer, config.num_attention_heads, config.hidden_size, config.intermediate_size
        )
        b.norm(f"{at}.layernorm_before", residual)
        b.linear(f"{at}.attention.q_proj", reads=residual, writes=b.per(heads, qk), bias=config.qkv_bias)
        b.linear(f"{at}.attention.k_proj", reads=residual, writes=b.per(heads, qk.dual()), bias=config.qkv_bias)
        b.linear(f"{at}.attention.v_proj", reads=residual, writes=b.per(heads, vo), bias=config.qkv_bias)
        b.linear(f"{at}.attention.o_proj", reads=b.per(heads, vo), writes=residual)
        b.norm(f"{at}.layernorm_after", residual)
        b.linear(f"{at}.mlp.fc1", reads=residual, writes=ffn)
        b.linear(f"{at}.mlp.fc2", reads=ffn, writes=residual)

    b.norm(f"{prefix}layernorm", residual)
    if head == "none":
        b.linear("pooler.dense", reads=residual, writes=None)
    else:
        b.linear("classifier", reads=residual, writes=None)
    return b.build()


@architecture("timm.VisionTransformer", "timm.VisionTransformerDistilled")
def timm_vit(model: nn.Module, class_name: str) -> Blueprint:
    """Describe timm's ViT and DeiT from a model's attributes (a model on the meta device will do)."""
    m: Any = model
    _refuse_variants(m)
    b = BlueprintBuilder(f"timm.{class_name}")
    height, width = _pair(m.patch_embed.img_size)
    b.takes("x", (m.patch_embed.proj.in_channels, height, width))
    residual = b.space("residual", Permutation(m.embed_dim), role="residual")
    b.leaves_out(FOLDED_RESIDUAL)

    for token in ("cls_token", "dist_token", "pos_embed"):
        if getattr(m, token, None) is not None:
            b.parameter(token, None, None, residual)
    b.parameter("patch_embed.proj.weight", residual, None, None, None)
    if m.patch_embed.proj.bias is not None:
        b.parameter("patch_embed.proj.bias", residual)

    for layer, block in enumerate(m.blocks):
        at, attention = f"blocks.{layer}", block.attn
        heads, qk, vo, ffn = _layer_spaces(
            b, layer, attention.num_heads, attention.num_heads * attention.head_dim, block.mlp.fc1.out_features
        )
        fused = Concat(b.per(heads, qk), b.per(heads, qk.dual()), b.per(heads, vo))
        b.norm(f"{at}.norm1", residual)
        b.linear(f"{at}.attn.qkv", reads=residual, writes=fused, bias=attention.qkv.bias is not None)
        b.linear(f"{at}.attn.proj", reads=b.per(heads, vo), writes=residual, bias=attention.proj.bias is not None)
        b.norm(f"{at}.norm2", residual)
        b.linear(f"{at}.mlp.fc1", reads=residual, writes=ffn, bias=block.mlp.fc1.bias is not None)
        b.linear(f"{at}.mlp.fc2", reads=ffn, writes=residual, bias=block.mlp.fc2.bias is not None)

    for norm in ("norm", "fc_norm"):
        if isinstance(getattr(m, norm), nn.LayerNorm):
            b.norm(norm, residual)
    for head in ("head", "head_dist"):
        if isinstance(getattr(m, head, None), nn.Linear):
            b.linear(head, reads=residual, writes=None)
    if not isinstance(m.head, nn.Linear):
        raise SymmetryError(f"{class_name} without a classifier returns its residual stream; expected num_classes > 0")
    return b.build()


def _layer_spaces(
    b: BlueprintBuilder, layer: int, head_count: int, width: int, hidden: int
) -> tuple[Along, Along, Along, Along]:
    heads = b.space(f"layers.{layer}.heads", Permutation(head_count), role="heads", layer=layer)
    inside = Invertible(width // head_count)
    qk = b.space(f"layers.{layer}.qk", inside, role="attention.qk", layer=layer, index=(heads.space,))
    vo = b.space(f"layers.{layer}.vo", inside, role="attention.vo", layer=layer, index=(heads.space,))
    ffn = b.space(f"layers.{layer}.ffn", Permutation(hidden), role="ffn", layer=layer)
    return heads, qk, vo, ffn


def _refuse_variants(m: Any) -> None:
    """Refuse the members of timm's family whose blocks compute something else than the plain ones."""
    for layer, block in enumerate(m.blocks):
        plain = type(block).__name__ == "Block" and type(block.attn).__name__ == "Attention"
        if not plain or type(block.mlp).__name__ != "Mlp":
            raise SymmetryError(f"timm's {type(block).__name__} is not described; expected plain pre-norm blocks")
        for part, name in ((block.attn, "q_norm"), (block.attn, "norm"), (block.mlp, "norm"), (block, "ls1")):
            if not isinstance(getattr(part, name, nn.Identity()), nn.Identity):
                raise SymmetryError(f"timm's {name} in block {layer} is not described; expected a block without it")
    for name in ("norm_pre", "attn_pool"):
        if not isinstance(getattr(m, name, None) or nn.Identity(), nn.Identity):
            raise SymmetryError(f"timm's {name} is not described; expected a model without it")
    if getattr(m, "reg_token", None) is not None:
        raise SymmetryError("timm's register tokens are not described; expected a model without them")


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])
