"""Models of images that transformers has."""

from transformers import ResNetConfig

from tests.symmetry.infer.cases.sample import Inputs, Sample, floats, images, pretrained, together

VIT = {
    "hidden_size": 24,
    "intermediate_size": 28,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 12,
    "patch_size": 4,
    "num_labels": 5,
}


def vision(name: str, head: str, inputs: Inputs, **config: object) -> Sample:
    return pretrained(name, head, inputs, **({"num_labels": 5} | config))


def vit(name: str, head: str, inputs: Inputs, **config: object) -> Sample:
    return pretrained(name, head, inputs, **(VIT | config))


SAMPLES: tuple[Sample, ...] = (
    vit(
        "vit_mae",
        "ViTMAEForPreTraining",
        together(images(12), floats("noise", 9)),
        mask_ratio=0.5,
        decoder_hidden_size=20,
        decoder_num_attention_heads=4,
        decoder_intermediate_size=22,
        decoder_num_hidden_layers=1,
    ),
    vit("dinov3_vit", "DINOv3ViTModel", images(12), hidden_size=32, num_register_tokens=3),
    vit("dinov3_vit (gated)", "DINOv3ViTModel", images(12), hidden_size=32, use_gated_mlp=True, key_bias=True),
    vision("convnext", "ConvNextForImageClassification", images(24), num_stages=2, hidden_sizes=[8, 12], depths=[1, 2]),
    vision(
        "convnextv2", "ConvNextV2ForImageClassification", images(24), num_stages=2, hidden_sizes=[8, 12], depths=[1, 2]
    ),
    vision(
        "resnet", "ResNetForImageClassification", images(24), embedding_size=10, hidden_sizes=[12, 20], depths=[2, 1]
    ),
    vision(
        "resnet (basic)",
        "ResNetForImageClassification",
        images(24),
        embedding_size=10,
        hidden_sizes=[7, 11],
        depths=[1, 2],
        layer_type="basic",
    ),
    vision(
        "regnet",
        "RegNetForImageClassification",
        images(24),
        embedding_size=13,
        hidden_sizes=[12, 20],
        depths=[1, 2],
        groups_width=4,
    ),
    vision(
        "regnet (without squeezing)",
        "RegNetForImageClassification",
        images(24),
        embedding_size=13,
        hidden_sizes=[12, 20],
        depths=[1, 2],
        groups_width=4,
        layer_type="x",
    ),
    *(
        vision(
            name,
            head,
            images(18),
            num_encoder_blocks=2,
            depths=[1, 2],
            sr_ratios=[3, 1],
            hidden_sizes=[10, 18],
            patch_sizes=[3, 3],
            strides=[2, 2],
            num_attention_heads=[2, 3],
            mlp_ratios=[3, 3],
            decoder_hidden_size=14,
            drop_path_rate=0.0,
        )
        for name, head in (
            ("segformer", "SegformerForImageClassification"),
            ("segformer (segmentation)", "SegformerForSemanticSegmentation"),
        )
    ),
    vision(
        "detr",
        "DetrForObjectDetection",
        images(40, 48),
        backbone_config=ResNetConfig(
            embedding_size=6, hidden_sizes=[7, 11], depths=[1, 1], layer_type="basic", out_features=["stage2"]
        ),
        num_queries=3,
        d_model=20,
        encoder_layers=1,
        decoder_layers=2,
        encoder_ffn_dim=26,
        decoder_ffn_dim=22,
        encoder_attention_heads=4,
        decoder_attention_heads=5,
    ),
    vit(
        "sam (vision encoder)",
        "SamVisionModel",
        images(24),
        image_size=24,
        mlp_dim=28,
        output_channels=10,
        window_size=4,
        global_attn_indexes=[1],
    ),
    vision(
        "swinv2",
        "Swinv2ForImageClassification",
        images(24),
        image_size=24,
        patch_size=3,
        embed_dim=12,
        depths=[2, 1],
        num_heads=[3, 4],
        window_size=4,
        mlp_ratio=1.5,
        drop_path_rate=0.0,
    ),
    vision(
        "pvt_v2",
        "PvtV2ForImageClassification",
        images(18),
        image_size=18,
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[3, 1],
        hidden_sizes=[10, 18],
        patch_sizes=[3, 3],
        strides=[2, 2],
        num_attention_heads=[2, 3],
        mlp_ratios=[3, 3],
    ),
    vision(
        "levit",
        "LevitForImageClassification",
        images(64),
        image_size=64,
        hidden_sizes=[24, 20, 28],
        num_attention_heads=[3, 4, 5],
        depths=[1, 1, 1],
        key_dim=[5, 6, 7],
        mlp_ratio=[3, 3, 3],
        attention_ratio=[2, 2, 2],
    ),
    vision(
        "poolformer",
        "PoolFormerForImageClassification",
        images(24),
        num_encoder_blocks=2,
        depths=[1, 1],
        hidden_sizes=[8, 12],
        patch_sizes=[7, 3],
        strides=[4, 2],
        padding=[2, 1],
        mlp_ratio=3.0,
    ),
)
