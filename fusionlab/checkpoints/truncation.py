"""The best two factors of a matrix, or of a product that is not formed.

The best approximation of a matrix by one of rank r keeps its r largest singular values (Eckart and Young, 1936).
"""

from __future__ import annotations

import torch
from torch import Tensor

from fusionlab.decompositions import svd


def truncated(difference: Tensor, rank: int) -> tuple[Tensor, Tensor, float]:
    """The best two factors of a matrix, and the share of its Frobenius norm that their product has.

    Args:
        difference: ``(out, in)``, not all zero.
        rank: of the product, at least 1; the matrix's own where that is less.

    Returns:
        A ``(rank, in)`` and B ``(out, rank)`` in float32, each with the square roots of the singular values, and the
        share.
    """
    u, s, vh = svd(difference.to(torch.promote_types(difference.dtype, torch.float32)), full_matrices=False)
    root = s[:rank].sqrt()
    share = float(s[:rank].norm() / s.norm())
    return (root[:, None] * vh[:rank]).float(), (u[:, :rank] * root).float(), share


def truncated_product(up: Tensor, down: Tensor, rank: int) -> tuple[Tensor, Tensor, float]:
    """The best two factors of a product of two, which is not formed, and the share of its norm that their product has.

    Both are split into orthonormal columns and a small rest, of whose product the singular values are.

    Args:
        up: ``(out, ranks)``, with fewer columns than rows.
        down: ``(ranks, in)``.
        rank: as in `truncated`, which this returns as well.
    """
    left, small_left = torch.linalg.qr(up.double())
    right, small_right = torch.linalg.qr(down.double().T)
    u, s, vh = svd(small_left @ small_right.T, full_matrices=False)
    # Beyond the product's own rank there is rounding alone.
    kept = min(rank, max(1, int((s > s[0] * max(up.shape[0], down.shape[1]) * torch.finfo(s.dtype).eps).sum())))
    root = s[:kept].sqrt()
    share = float(s[:kept].norm() / s.norm()) if s[0] > 0 else 1.0
    return (root[:, None] * (vh[:kept] @ right.T)).float(), (left @ u[:, :kept] * root).float(), share
