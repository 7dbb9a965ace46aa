"""Inner products of parameters in float64, without copies of them in float64."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fusionlab.merging.ingredients import PIECE


def inner_products(tensors: Sequence[Tensor]) -> Tensor:
    """The inner products of some tensors of one size, flattened, in float64, shape ``(tensors, tensors)``.

    Args:
        tensors: of any shape, each in one piece of memory.
    """
    total = torch.zeros(len(tensors), len(tensors), dtype=torch.float64)
    flat = [tensor.flatten() for tensor in tensors]
    for start in range(0, len(flat[0]), PIECE):
        rows = torch.stack([tensor[start : start + PIECE].double() for tensor in flat])
        total += (rows @ rows.mT).cpu()
    return total
