"""BEiT, DINOv2 and Swin."""

from transformers import (
    BeitConfig,
    BeitForImageClassification,
    BeitForMaskedImageModeling,
    BeitModel,
    Dinov2Config,
    Dinov2ForImageClassification,
    Dinov2Model,
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersForImageClassification,
    Dinov2WithRegistersModel,
    SwinConfig,
    SwinForImageClassification,
    SwinForMaskedImageModeling,
    SwinModel,
)

from tests.families.harness import Case
from tests.symmetry.written.registry import is_before

SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}
IMAGES = {"image_size": 8, "patch_size": 4, "num_channels": 2, "num_labels": 5}
PATCHES = ("embeddings.patch_embeddings.projection.weight", "embeddings.patch_embeddings.projection.bias")


def beit_config(**changes: object) -> BeitConfig:
    return BeitConfig(**SIZES, **IMAGES, intermediate_size=20, vocab_size=11, **changes)


def dinov2_config(**changes: object) -> Dinov2Config:
    return Dinov2Config(**SIZES, **IMAGES, mlp_ratio=2, **changes)


def registers_config(**changes: object) -> Dinov2WithRegistersConfig:
    return Dinov2WithRegistersConfig(**SIZES, **IMAGES, mlp_ratio=2, num_register_tokens=2, **changes)


def swin_config(**changes: object) -> SwinConfig:
    sizes = {
        "image_size": 16,
        "patch_size": 2,
        "num_channels": 2,
        "embed_dim": 12,
        "depths": [1, 2, 1],
        "num_heads": [4, 6, 8],
        "window_size": 2,
        "mlp_ratio": 1.5,
        "encoder_stride": 8,
        "num_labels": 5,
    }
    return SwinConfig(**(sizes | changes))


def layers(at: str, count: int, *names: str) -> tuple[str, ...]:
    return tuple(f"{at}.{layer}.{name}" for layer in range(count) for name in names)


BARE_BEIT_LAYERS = layers(
    "layers",
    2,
    "layernorm_before.weight",
    "layernorm_before.bias",
    "attention.o_proj.bias",
    "layernorm_after.weight",
    "layernorm_after.bias",
    "mlp.fc2.bias",
    "lambda_1",
    "lambda_2",
)


# DINOv2 had other names before.
OLDER = is_before("transformers", "5.18")


def bare_dinov2_layers(last: str) -> tuple[str, ...]:
    return layers(
        "encoder.layer",
        2,
        "norm1.weight",
        "norm1.bias",
        "attention.output.dense.bias" if OLDER else "attention.o_proj.bias",
        "layer_scale1.lambda1",
        "norm2.weight",
        "norm2.bias",
        f"mlp.{last}.bias",
        "layer_scale2.lambda1",
    )


CASES = [
    Case(
        "beit",
        lambda: BeitModel(beit_config()),
        ("embeddings.cls_token", *PATCHES, *BARE_BEIT_LAYERS, "pooler.layernorm.weight", "pooler.layernorm.bias"),
        notes=("output",),
    ),
    Case(
        "beit-class-token",
        lambda: BeitModel(
            beit_config(use_mean_pooling=False, use_mask_token=True, use_absolute_position_embeddings=True)
        ),
        (
            "embeddings.cls_token",
            "embeddings.mask_token",
            "embeddings.position_embeddings",
            *PATCHES,
            *BARE_BEIT_LAYERS,
            "layernorm.weight",
            "layernorm.bias",
        ),
        notes=("output",),
    ),
    Case(
        "beit-classifier",
        lambda: BeitForImageClassification(beit_config(use_relative_position_bias=True)),
        ("classifier.bias",),
    ),
    Case(
        "beit-classifier-class-token",
        lambda: BeitForImageClassification(
            beit_config(use_mean_pooling=False, use_absolute_position_embeddings=True, layer_scale_init_value=0.0)
        ),
        ("classifier.bias",),
    ),
    Case(
        "beit-tokens",
        lambda: BeitForMaskedImageModeling(beit_config(use_mask_token=True, use_shared_relative_position_bias=True)),
        ("lm_head.bias",),
    ),
    Case(
        "beit-tokens-both-tables",
        lambda: BeitForMaskedImageModeling(
            beit_config(use_shared_relative_position_bias=True, use_relative_position_bias=True, hidden_act="relu")
        ),
        ("lm_head.bias",),
    ),
    Case(
        "beit-tokens-two-norms",
        lambda: BeitForMaskedImageModeling(beit_config(use_mask_token=True, use_mean_pooling=False)),
        ("lm_head.bias",),
        # transformers reads its two norms back under each other's names, whatever their values.
        stored=False,
    ),
    Case(
        "dinov2",
        lambda: Dinov2Model(dinov2_config()),
        (
            "embeddings.cls_token",
            "embeddings.position_embeddings",
            "embeddings.mask_token",
            *PATCHES,
            *bare_dinov2_layers("fc2"),
            "layernorm.weight",
            "layernorm.bias",
        ),
        notes=("output",),
    ),
    Case(
        "dinov2-classifier",
        lambda: Dinov2ForImageClassification(dinov2_config()),
        ("classifier.bias",),
        unread=("dinov2.embeddings.mask_token",),
    ),
    Case(
        "dinov2-classifier-swiglu",
        lambda: Dinov2ForImageClassification(dinov2_config(use_swiglu_ffn=True, use_mask_token=False)),
        ("classifier.bias",),
    ),
    Case(
        "dinov2-classifier-no-qkv-bias",
        lambda: Dinov2ForImageClassification(dinov2_config(qkv_bias=False)),
        ("classifier.bias",),
        unread=("dinov2.embeddings.mask_token",),
    ),
    Case(
        "dinov2-registers",
        lambda: Dinov2WithRegistersModel(registers_config(use_swiglu_ffn=True)),
        (
            "embeddings.cls_token",
            "embeddings.position_embeddings",
            "embeddings.register_tokens",
            "embeddings.mask_token",
            *PATCHES,
            *bare_dinov2_layers("weights_out" if OLDER else "down_proj"),
            "layernorm.weight",
            "layernorm.bias",
        ),
        notes=("output",),
    ),
    Case(
        "dinov2-registers-classifier",
        lambda: Dinov2WithRegistersForImageClassification(registers_config()),
        ("classifier.bias",),
        unread=("dinov2_with_registers.embeddings.mask_token",),
    ),
    Case(
        "swin",
        lambda: SwinModel(swin_config()),
        (
            "encoder.layers.2.blocks.0.layernorm_before.weight",
            "encoder.layers.2.blocks.0.layernorm_before.bias",
            "encoder.layers.2.blocks.0.attention.o_proj.bias",
            "encoder.layers.2.blocks.0.layernorm_after.weight",
            "encoder.layers.2.blocks.0.layernorm_after.bias",
            "encoder.layers.2.blocks.0.mlp.fc2.bias",
            "layernorm.weight",
            "layernorm.bias",
        ),
        notes=("output",),
    ),
    Case("swin-classifier", lambda: SwinForImageClassification(swin_config()), ("classifier.bias",)),
    Case(
        "swin-classifier-absolute",
        lambda: SwinForImageClassification(swin_config(use_absolute_embeddings=True, qkv_bias=False)),
        ("classifier.bias",),
    ),
    Case(
        "swin-classifier-padded",
        lambda: SwinForImageClassification(swin_config(image_size=18, window_size=2)),
        ("classifier.bias",),
    ),
    Case("swin-pixels", lambda: SwinForMaskedImageModeling(swin_config()), ("decoder.0.bias",)),
]
