"""Finiteness of many numbers, told by their sums: one pass over them, and nothing of their size is made."""

import torch
from torch import Tensor

# Numbers that are summed together, few enough to lie in a processor's cache.
_PIECE = 2**18


def all_finite(tensor: Tensor) -> bool:
    """True if no number of a tensor is NaN or infinite.

    A sum with NaN or an infinity among its terms is one itself. A sum of finite numbers may overflow, so where it is
    not finite its terms are looked at.

    Args:
        tensor: any shape; floating point of at least 16 bits, or integers, which are always finite.
    """
    if not tensor.is_floating_point():
        return True
    wide = torch.promote_types(tensor.dtype, torch.float32)
    return all(
        bool(torch.isfinite(piece.sum(dtype=wide))) or bool(torch.isfinite(piece).all())
        for piece in tensor.detach().reshape(-1).split(_PIECE)
    )
