"""Small images: of few patches, and of as many windows as the real one has where stages halve it."""

from __future__ import annotations

from typing import Any

from fusionlab.symmetry.infer.combined_sizes import Fields, is_list_of_sizes, is_pair, is_size, pair_of

_PATCH, _PATCHES = 4, 3


def small_image(node: Fields, window: Any, fold: Any = None) -> dict[str, Any]:
    """The small sides of an image and of its patches, by field; empty where a config says none.

    Args:
        node: a config's fields.
        window: the small side of a window, in patches, if there is one.
        fold: the side of a square of patches that becomes one feature, if there is one.
    """
    image: Any = node.get("image_size")
    patch: Any = node.get("patch_size")
    if not (is_size(image) or is_pair(image)):
        return {}
    chosen: dict[str, Any] = {}
    old = max(patch) if is_list_of_sizes(patch) else patch if is_size(patch) else None
    side = min(old, _PATCH) if old else 1
    if isinstance(node.get("depths"), list):
        halvings = 2 ** (len(node["depths"]) - 1)
        grid = 2 * halvings
        if is_size(node.get("window_size")) and old:
            windows = max(pair_of(image)) // (old * node["window_size"])
            grid = window * max(1, min(windows, 2 * halvings))
        side = side if old else 4
    else:
        grid = _PATCHES * (fold if is_size(fold) else 1)
        side = side if old else 16
    if old:
        chosen["patch_size"] = [side] * len(patch) if is_list_of_sizes(patch) else side
    stride = node.get("encoder_stride")
    if is_size(stride) and old and stride % old == 0:
        chosen["encoder_stride"] = stride // old * side
    height, width = pair_of(image)
    sides = [grid * side, grid * side + (0 if height == width else side)]
    return {**chosen, "image_size": sides if is_list_of_sizes(image) else sides[0]}
