"""Images that timm's models were made for, which no config says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

# Sides of images that nets of any size are traced with: after five halvings two by two are left.
_SIDE = 64
_EXAMPLES = 2
Size = tuple[int, int, int]


def image_size(model: nn.Module) -> Size | None:
    """Channels, height and width of a timm model's images; None for any other module."""
    told: Any = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    size = told.get("input_size") if isinstance(told, dict) else getattr(told, "input_size", None)
    first = next((part for part in model.modules() if isinstance(part, nn.Conv2d)), None)
    if not isinstance(size, tuple | list) or len(size) != 3 or first is None:
        return None
    sides = getattr(getattr(model, "patch_embed", None), "img_size", None)
    height, width = sides if isinstance(sides, tuple) and len(sides) == 2 else size[1:]
    return first.in_channels, int(height), int(width)


def images(model: nn.Module) -> Iterator[Tensor]:
    """Batches that may be a timm model's, of small images first: not all nets take another size than their own.

    Args:
        model: any module; there are none for one that is not timm's.
    """
    size = image_size(model)
    if size is None:
        return
    channels, *sides = size
    generator = torch.Generator().manual_seed(0)
    small = [min(side, _SIDE) for side in sides]
    for height, width in dict.fromkeys((tuple(small), tuple(sides))):
        yield torch.randn(_EXAMPLES, channels, height, width, generator=generator)
