"""Masks among the buffers of a model, whose numbers its code compares with zero or adds to what it leaves out."""

from __future__ import annotations

from torch import Tensor

# Numbers of masks, and how many of a tensor's are looked at before all are.
_OF_MASKS, _LOOKED_AT = {0.0, 1.0, float("-inf"), float("inf")}, 4096


def is_mask(tensor: Tensor) -> bool:
    """True for zeros among which ones or infinities stand, or ones among infinities."""
    found = set(tensor.flatten()[:_LOOKED_AT].unique().tolist()) if tensor.ndim else set()
    if len(found) != 2 or not found <= _OF_MASKS:
        return False
    return set(tensor.unique().tolist()) == found
