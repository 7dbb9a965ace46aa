"""Small models of every kind of checkpoint, and inputs for them."""

from typing import Any

import timm
import torch
from torch import Tensor, nn
from transformers import ViTConfig, ViTForImageClassification

PIXELS = (2, 1, 8, 8)
TIMM_SIZE: dict[str, Any] = {
    "img_size": 8, "patch_size": 4, "in_chans": 1, "embed_dim": 16, "depth": 2, "num_heads": 2, "num_classes": 3,
}  # fmt: skip


def vit(num_labels: int = 3) -> ViTForImageClassification:
    """A transformers ViT with random weights."""
    torch.manual_seed(0)
    fields: dict[str, Any] = {"num_labels": num_labels}
    config = ViTConfig(
        image_size=8,
        patch_size=4,
        num_channels=1,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        **fields,
    )
    return ViTForImageClassification(config).eval()


def timm_vit(architecture: str = "vit_tiny_patch16_224") -> nn.Module:
    """A timm ViT or DeiT with random weights."""
    torch.manual_seed(0)
    return timm.create_model(architecture, **TIMM_SIZE).eval()


def pixels(dtype: torch.dtype = torch.float32) -> Tensor:
    """Two grey images of 8 x 8 pixels."""
    return torch.randn(PIXELS, generator=torch.Generator().manual_seed(1)).to(dtype)
