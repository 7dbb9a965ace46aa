"""transformers' ViT and DeiT, timm's VisionTransformer and distilled DeiT."""

from functools import partial

import timm
from timm.layers import RmsNorm, SwiGLU, SwiGLUPacked
from torch import nn
from transformers import (
    DeiTConfig,
    DeiTForImageClassification,
    DeiTForImageClassificationWithTeacher,
    DeiTForMaskedImageModeling,
    DeiTModel,
    ViTConfig,
    ViTForImageClassification,
    ViTForMaskedImageModeling,
    ViTModel,
)

from tests.families.harness import Case

SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
IMAGES = {"image_size": 8, "patch_size": 4, "encoder_stride": 4, "num_channels": 2, "num_labels": 5}
TIMM = {"img_size": 32, "depth": 2, "embed_dim": 24, "num_heads": 3, "num_classes": 5}
PATCHES = ("embeddings.patch_embeddings.projection.weight", "embeddings.patch_embeddings.projection.bias")
BARE_LAYERS = tuple(
    f"layers.{layer}.{name}"
    for layer in range(2)
    for name in (
        "layernorm_before.weight",
        "layernorm_before.bias",
        "attention.o_proj.bias",
        "layernorm_after.weight",
        "layernorm_after.bias",
        "mlp.fc2.bias",
    )
)
BARE_END = ("layernorm.weight", "layernorm.bias", "pooler.dense.weight", "pooler.dense.bias")


def vit_config(**changes: object) -> ViTConfig:
    return ViTConfig(**SIZES, **(IMAGES | changes))


def deit_config(**changes: object) -> DeiTConfig:
    return DeiTConfig(**SIZES, **(IMAGES | changes))


def timm_case(
    name: str,
    model: str = "vit_tiny_patch16_224",
    untouched: tuple[str, ...] = ("head.bias",),
    notes: tuple[str, ...] = (),
    **changes: object,
) -> Case:
    return Case(name, lambda: timm.create_model(model, **(TIMM | changes)), untouched, stored=False, notes=notes)


def blocks(*names: str) -> tuple[str, ...]:
    return tuple(f"blocks.{layer}.{name}" for layer in range(2) for name in names)


QK_NORMS = ("attn.q_norm.weight", "attn.q_norm.bias", "attn.k_norm.weight", "attn.k_norm.bias")
BARE_BLOCKS = ("norm1.weight", "norm1.bias", "attn.proj.bias", "norm2.weight", "norm2.bias", "mlp.fc2.bias")
BARE_SCALED_BLOCKS = (
    "norm1.weight",
    "norm1.bias",
    "attn.proj.bias",
    "ls1.gamma",
    "norm2.weight",
    "norm2.bias",
    "mlp.fc2.bias",
    "ls2.gamma",
)

CASES = [
    Case("vit-classifier", lambda: ViTForImageClassification(vit_config()), ("classifier.bias",)),
    Case(
        "vit",
        lambda: ViTModel(vit_config(pooler_output_size=7)),
        ("embeddings.cls_token", "embeddings.position_embeddings", *PATCHES, *BARE_LAYERS, *BARE_END),
        notes=("output",),
    ),
    Case("vit-pixels", lambda: ViTForMaskedImageModeling(vit_config()), ("decoder.0.bias",)),
    Case(
        "vit-pixels-without-a-mask",
        lambda: ViTForMaskedImageModeling(vit_config(encoder_stride=2)),
        ("decoder.0.bias",),
        unread=("vit.embeddings.mask_token",),
    ),
    Case("vit-no-qkv-bias", lambda: ViTForImageClassification(vit_config(qkv_bias=False)), ("classifier.bias",)),
    Case("vit-relu", lambda: ViTForImageClassification(vit_config(hidden_act="relu")), ("classifier.bias",)),
    Case("vit-oblong", lambda: ViTForImageClassification(vit_config(image_size=[8, 12])), ("classifier.bias",)),
    Case(
        "deit",
        lambda: DeiTModel(deit_config()),
        (
            "embeddings.cls_token",
            "embeddings.position_embeddings",
            "embeddings.distillation_token",
            *PATCHES,
            *BARE_LAYERS,
            *BARE_END,
        ),
        notes=("output",),
    ),
    Case("deit-classifier", lambda: DeiTForImageClassification(deit_config()), ("classifier.bias",)),
    Case(
        "deit-teacher",
        lambda: DeiTForImageClassificationWithTeacher(deit_config()),
        ("cls_classifier.bias", "distillation_classifier.bias"),
    ),
    Case("deit-pixels", lambda: DeiTForMaskedImageModeling(deit_config()), ("decoder.0.bias",)),
    timm_case("timm-vit"),
    timm_case("timm-vit-average", global_pool="avg"),
    timm_case("timm-vit-average-normed-first", global_pool="avg", fc_norm=False),
    timm_case("timm-vit-largest", global_pool="max", notes=("largest",)),
    timm_case("timm-vit-all-tokens", global_pool=""),
    timm_case(
        "timm-vit-attention-pool",
        "vit_base_patch16_siglip_224",
        untouched=("attn_pool.latent", "head.bias"),
        notes=("pooling query",),
    ),
    timm_case(
        "timm-vit-attention-pool-normed-last",
        untouched=("attn_pool.latent", "head.bias"),
        global_pool="map",
        fc_norm=True,
    ),
    timm_case(
        "timm-vit-attention-pool-features",
        untouched=(
            "attn_pool.latent",
            "attn_pool.proj.bias",
            "attn_pool.norm.weight",
            "attn_pool.norm.bias",
            "attn_pool.mlp.fc2.bias",
        ),
        notes=("output",),
        global_pool="map",
        class_token=False,
        num_classes=0,
    ),
    timm_case(
        "timm-vit-features",
        untouched=(
            "cls_token",
            "pos_embed",
            "patch_embed.proj.weight",
            "patch_embed.proj.bias",
            *blocks(*BARE_BLOCKS),
            "norm.weight",
            "norm.bias",
        ),
        notes=("output",),
        num_classes=0,
    ),
    timm_case("timm-vit-no-class-token", class_token=False, global_pool="avg", pos_embed="none"),
    timm_case("timm-vit-registers", reg_tokens=2, no_embed_class=True),
    timm_case("timm-vit-layer-scale", init_values=1e-2),
    timm_case("timm-vit-pre-norm", pre_norm=True, notes=("norm with a gain",)),
    timm_case("timm-vit-embedding-norm", embed_norm_layer=nn.LayerNorm, notes=("norm with a gain",)),
    timm_case("timm-vit-no-final-norm", final_norm=False),
    timm_case("timm-vit-qk-norm", untouched=(*blocks(*QK_NORMS), "head.bias"), qk_norm=True, notes=("qk",)),
    timm_case("timm-vit-scale-norms", scale_attn_norm=True, scale_mlp_norm=True, notes=("attention.vo",)),
    timm_case("timm-vit-rms", norm_layer=RmsNorm),
    timm_case("timm-vit-relu", act_layer=nn.ReLU),
    timm_case("timm-vit-no-biases", qkv_bias=False, proj_bias=False),
    timm_case("timm-vit-swiglu", mlp_layer=SwiGLU),
    timm_case("timm-vit-swiglu-packed", mlp_layer=partial(SwiGLUPacked)),
    timm_case("timm-deit3", "deit3_small_patch16_224"),
    timm_case(
        "timm-dinov2",
        "vit_small_patch14_reg4_dinov2",
        untouched=(
            "cls_token",
            "reg_token",
            "pos_embed",
            "patch_embed.proj.weight",
            "patch_embed.proj.bias",
            *blocks(*BARE_SCALED_BLOCKS),
            "norm.weight",
            "norm.bias",
        ),
        img_size=28,
        num_classes=0,
    ),
    timm_case("timm-deit-distilled", "deit_tiny_distilled_patch16_224", untouched=("head.bias", "head_dist.bias")),
]
