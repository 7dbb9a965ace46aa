"""CLIP and SigLIP: both towers, each alone, and the classifiers on their vision towers."""

from transformers import (
    CLIPConfig,
    CLIPForImageClassification,
    CLIPModel,
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPVisionConfig,
    CLIPVisionModel,
    CLIPVisionModelWithProjection,
    SiglipConfig,
    SiglipForImageClassification,
    SiglipModel,
    SiglipTextConfig,
    SiglipTextModel,
    SiglipVisionConfig,
    SiglipVisionModel,
)

from tests.families.harness import Case

LAYERS = {"intermediate_size": 20, "num_hidden_layers": 2}
# With this end token CLIP pools the largest id, as its first checkpoints do.
TEXT = {
    **LAYERS,
    "hidden_size": 24,
    "num_attention_heads": 3,
    "vocab_size": 40,
    "max_position_embeddings": 16,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
VISION = {
    **LAYERS,
    "hidden_size": 20,
    "num_attention_heads": 2,
    "image_size": 8,
    "patch_size": 4,
    "num_channels": 2,
}


def clip_config(num_labels: int = 5, **changes: object) -> CLIPConfig:
    towers = {"text_config": {**TEXT, **changes}, "vision_config": {**VISION, **changes}}
    return CLIPConfig(**towers, projection_dim=7, num_labels=num_labels)


def siglip_config(num_labels: int = 5, **vision: object) -> SiglipConfig:
    towers = {"text_config": {**TEXT, "projection_size": 20}, "vision_config": {**VISION, **vision}}
    return SiglipConfig(**towers, num_labels=num_labels)


def without_residual(layers: int = 2) -> tuple[str, ...]:
    """What no space touches in the layers of a tower whose stream is the model's output."""
    return tuple(
        f"encoder.layers.{layer}.{name}"
        for layer in range(layers)
        for name in (
            "layer_norm1.weight",
            "layer_norm1.bias",
            "self_attn.out_proj.bias",
            "layer_norm2.weight",
            "layer_norm2.bias",
            "mlp.fc2.bias",
        )
    )


TOKENS = ("embeddings.token_embedding.weight", "embeddings.position_embedding.weight")
FINAL_NORM = ("final_layer_norm.weight", "final_layer_norm.bias")
POST_NORM = ("post_layernorm.weight", "post_layernorm.bias")
# The pooling head's output is the image embedding.
POOLING_HEAD = (
    "head.attention.out_proj.bias",
    "head.layernorm.weight",
    "head.layernorm.bias",
    "head.mlp.fc2.bias",
)
# A classifier averages over the patches and leaves the pooling head unread.
UNREAD_HEAD = (
    "probe",
    "attention.in_proj_weight",
    "attention.in_proj_bias",
    "attention.out_proj.weight",
    "mlp.fc1.weight",
    "mlp.fc1.bias",
    "mlp.fc2.weight",
)
SIGLIP_PATCHES = (
    "embeddings.patch_embedding.weight",
    "embeddings.patch_embedding.bias",
    "embeddings.position_embedding.weight",
)

CASES = [
    Case("clip", lambda: CLIPModel(clip_config()), ("logit_scale",)),
    Case("clip-gelu", lambda: CLIPModel(clip_config(hidden_act="gelu")), ("logit_scale",)),
    Case(
        "clip-text",
        lambda: CLIPTextModel(CLIPTextConfig(**TEXT)),
        (*TOKENS, *without_residual(), *FINAL_NORM),
    ),
    Case("clip-text-projection", lambda: CLIPTextModelWithProjection(CLIPTextConfig(**TEXT, projection_dim=7)), ()),
    Case(
        "clip-vision",
        lambda: CLIPVisionModel(CLIPVisionConfig(**VISION)),
        (
            "embeddings.class_embedding",
            "embeddings.patch_embedding.weight",
            "embeddings.position_embedding.weight",
            "pre_layrnorm.weight",
            "pre_layrnorm.bias",
            *without_residual(),
            *POST_NORM,
        ),
    ),
    Case(
        "clip-vision-projection",
        lambda: CLIPVisionModelWithProjection(CLIPVisionConfig(**VISION, projection_dim=7)),
        (),
    ),
    Case(
        "clip-classifier",
        lambda: CLIPForImageClassification(clip_config()),
        ("classifier.bias",),
        unread=(
            "vision_model.post_layernorm.weight",
            "vision_model.post_layernorm.bias",
        ),
    ),
    Case(
        "siglip",
        lambda: SiglipModel(siglip_config()),
        ("logit_scale", "logit_bias", "text_model.head.bias", *(f"vision_model.{name}" for name in POOLING_HEAD)),
    ),
    Case(
        "siglip-text",
        lambda: SiglipTextModel(SiglipTextConfig(**TEXT, projection_size=20)),
        (*TOKENS, *without_residual(), *FINAL_NORM, "head.weight", "head.bias"),
        notes=("residual stream is an output",),
    ),
    Case(
        "siglip-vision",
        lambda: SiglipVisionModel(SiglipVisionConfig(**VISION)),
        (*SIGLIP_PATCHES, *without_residual(), *POST_NORM, "head.probe", *POOLING_HEAD),
        notes=("residual stream is an output",),
    ),
    Case(
        "siglip-vision-no-head",
        lambda: SiglipVisionModel(SiglipVisionConfig(**VISION, vision_use_head=False)),
        (*SIGLIP_PATCHES, *without_residual(), *POST_NORM),
    ),
    Case(
        "siglip-classifier",
        lambda: SiglipForImageClassification(siglip_config()),
        (*(f"vision_model.{name}" for name in POOLING_HEAD), "classifier.bias"),
        unread=tuple(f"vision_model.head.{name}" for name in UNREAD_HEAD),
    ),
    Case(
        "siglip-classifier-no-head",
        lambda: SiglipForImageClassification(siglip_config(vision_use_head=False)),
        ("classifier.bias",),
    ),
]
