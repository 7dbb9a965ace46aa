"""Inputs of models that take an image as a list of its patches, and how many stand beside and below each other.

Such an image is as large as its user likes; the smallest that shows everything is guessed: in whole squares of patches
that become one feature, and in windows of attention that are not all full.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

from torch import nn

from fusionlab.symmetry.infer.combined_sizes import is_size, pair_of
from fusionlab.symmetry.inputs import Input

# Of patches, or of squares of them that become one feature: how many stand below and beside each other.
_GRID = (3, 2)
_FRAMES = 1


def listed_patches(model: nn.Module) -> list[Input]:
    """An image as its patches, each example's with a mask and with the sides of the image; empty for other models.

    Args:
        model: of transformers, as SigLIP 2.
    """
    vision = _vision(model)
    if not {"pixel_values", "spatial_shapes"} <= set(inspect.signature(model.forward).parameters):
        return []
    if not (is_size(getattr(vision, "num_patches", None)) and is_size(getattr(vision, "patch_size", None))):
        return []
    height, width = _GRID
    found = [
        Input("pixel_values", (height * width, vision.num_channels * vision.patch_size**2)),
        Input("spatial_shapes", (2,), numbers=(height, width)),
    ]
    if "pixel_attention_mask" in inspect.signature(model.forward).parameters:
        found.append(Input("pixel_attention_mask", (height * width,), numbers=(1,) * (height * width)))
    return found


def stacked_patches(model: nn.Module) -> list[Input]:
    """The patches of all images behind each other, and each image's frames, height and width; empty for other models.

    Args:
        model: of transformers, as Qwen2-VL; each text has one image.
    """
    vision: Any = _vision(model)
    if not {"pixel_values", "image_grid_thw"} <= set(inspect.signature(model.forward).parameters):
        return []
    merge: Any = getattr(vision, "spatial_merge_size", None)
    patch: Any = getattr(vision, "patch_size", None)
    channels: Any = getattr(vision, "in_channels", None) or getattr(vision, "num_channels", None)
    if not (is_size(merge) and patch and is_size(channels)):
        return []
    every: Any = getattr(vision, "temporal_patch_size", 1)
    frames = every if is_size(every) else every[0]
    window: Any = getattr(vision, "window_size", None)
    # Windows of one square more than fit, so that not all are full.
    least = 1 + window // (merge * max(pair_of(patch))) if is_size(window) else 0
    height, width = (merge * max(side, least) for side in _GRID)
    return [
        Input("pixel_values", (height * width, channels * frames * math.prod(pair_of(patch))), is_stacked=True),
        Input("image_grid_thw", (3,), numbers=(_FRAMES, height, width)),
    ]


def features_of(model: nn.Module, grid: Input) -> int:
    """The number of features of an image that take their place among the words.

    Args:
        model: of transformers.
        grid: frames, height and width of an image, of `stacked_patches`.
    """
    frames, height, width = grid.numbers or (0, 0, 0)
    return int(frames * height * width // _vision(model).spatial_merge_size ** 2)


def _vision(model: nn.Module) -> Any:
    config: Any = model.config
    return getattr(config, "vision_config", config)
