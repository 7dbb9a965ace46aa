"""Models that look at images beside text."""

import torch
from torch import Tensor

from tests.symmetry.infer.cases.sample import Inputs, Sample, constant, floats, images, pretrained, together, tokens

IMAGE_TOKEN = 3
TEXT = {
    "vocab_size": 37,
    "hidden_size": 24,
    "intermediate_size": 28,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 29,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
VISION = {
    "hidden_size": 20,
    "intermediate_size": 26,
    "num_hidden_layers": 2,
    "num_attention_heads": 5,
    "image_size": 12,
    "patch_size": 4,
}


def prompts(count: int, first: int | None = None) -> Inputs:
    """Token ids, (2, count + 5): two of text, perhaps `first`, `count` of the image, and text again."""

    def draw_ids(draw: torch.Generator) -> dict[str, Tensor]:
        ids = torch.randint(7, 37, (2, count + 5), generator=draw)
        ids[:, 2 : 2 + count] = IMAGE_TOKEN
        if first is not None:
            ids[:, 1] = first
        return {"input_ids": ids}

    return draw_ids


def kinds(count: int) -> Inputs:
    """Which of the prompt's tokens stand for an image."""
    return constant("mm_token_type_ids", *[[0] * 2 + [1] * count + [0] * 3] * 2)


QWEN_TEXT = {**TEXT, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 1]}}
QWEN = {"image_token_id": IMAGE_TOKEN, "video_token_id": 4, "vision_start_token_id": 5, "vision_end_token_id": 6}

SAMPLES: tuple[Sample, ...] = (
    pretrained(
        "llava",
        "LlavaForConditionalGeneration",
        together(prompts(9), images(12)),
        text_config={"model_type": "llama", **TEXT},
        vision_config={"model_type": "clip_vision_model", **VISION},
        image_token_index=IMAGE_TOKEN,
        image_seq_length=9,
        vision_feature_layer=-1,
    ),
    pretrained(
        "qwen2_vl",
        "Qwen2VLForConditionalGeneration",
        together(
            prompts(4, first=5),
            kinds(4),
            floats("pixel_values", 3 * 3 * 16, batch=32),
            constant("image_grid_thw", [1, 4, 4], [1, 4, 4]),
        ),
        text_config=QWEN_TEXT,
        vision_config={
            "depth": 2,
            "embed_dim": 32,
            "hidden_size": 24,
            "num_heads": 4,
            "mlp_ratio": 3,
            "patch_size": 4,
            "temporal_patch_size": 3,
        },
        **QWEN,
    ),
    pretrained(
        "qwen2_5_vl",
        "Qwen2_5_VLForConditionalGeneration",
        together(
            prompts(9, first=5),
            kinds(9),
            floats("pixel_values", 3 * 3 * 16, batch=72),
            constant("image_grid_thw", [1, 6, 6], [1, 6, 6]),
        ),
        text_config=QWEN_TEXT,
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "out_hidden_size": 24,
            "intermediate_size": 42,
            "num_heads": 4,
            "patch_size": 4,
            "temporal_patch_size": 3,
            "window_size": 16,
            "fullatt_block_indexes": [1],
        },
        **QWEN,
    ),
    pretrained(
        "paligemma",
        "PaliGemmaForConditionalGeneration",
        together(prompts(9), images(12), constant("token_type_ids", *[[0] * 11 + [1] * 3] * 2)),
        text_config={"model_type": "gemma", **TEXT, "head_dim": 10},
        vision_config={"model_type": "siglip_vision_model", **VISION, "vision_use_head": False},
        image_token_index=IMAGE_TOKEN,
        projection_dim=24,
        hidden_size=24,
    ),
    *(
        pretrained(
            name,
            head,
            together(prompts(1), lambda draw: {"pixel_values": torch.randn(2, 1, 3, 12, 12, generator=draw)}),
            text_config={"model_type": "llama", **TEXT},
            vision_config=VISION,
            image_token_id=IMAGE_TOKEN,
            scale_factor=3,
            pad_token_id=0,
        )
        for name, head in (
            ("idefics3", "Idefics3ForConditionalGeneration"),
            ("smolvlm", "SmolVLMForConditionalGeneration"),
        )
    ),
    pretrained(
        "siglip2",
        "Siglip2Model",
        together(
            tokens(batch=2, high=37),
            floats("pixel_values", 9, 3 * 16),
            constant("pixel_attention_mask", [1] * 9, [1] * 6 + [0] * 3),
            constant("spatial_shapes", [3, 3], [2, 3]),
        ),
        text_config={**{k: TEXT[k] for k in TEXT if k != "num_key_value_heads"}, "max_position_embeddings": 7},
        vision_config={
            **{k: VISION[k] for k in VISION if k != "image_size"},
            "hidden_size": 24,
            "intermediate_size": 26,
            "num_attention_heads": 3,
            "num_patches": 16,
        },
    ),
    pretrained(
        "blip",
        "BlipForConditionalGeneration",
        together(images(12), tokens(batch=2)),
        text_config={
            **{k: TEXT[k] for k in TEXT if k != "num_key_value_heads"},
            "encoder_hidden_size": 20,
            "projection_dim": 14,
            "hidden_dropout_prob": 0.0,
        },
        vision_config=VISION,
        projection_dim=14,
    ),
    pretrained(
        "vilt",
        "ViltForQuestionAnswering",
        together(tokens(batch=2), images(12)),
        **{k: v for k, v in TEXT.items() if k != "num_key_value_heads"},
        image_size=12,
        patch_size=4,
        type_vocab_size=3,
        modality_type_vocab_size=3,
        num_labels=5,
    ),
)
