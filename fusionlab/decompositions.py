"""Singular value decompositions that come to an end for every finite matrix."""

from __future__ import annotations

import numpy as np
import scipy.linalg
import torch
from torch import Tensor


def svd(matrix: Tensor, full_matrices: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """The factors ``U, S, Vh`` of ``U diag(S) Vh``, as `torch.linalg.svd` gives them.

    LAPACK's divide and conquer (gesdd), which torch uses, gives up on some matrices with many equal singular values,
    such as those of a model that was grown, half of whose directions are empty. QR iteration (gesvd) is slower and
    decomposes those.

    Args:
        matrix: shape ``(*copies, m, n)``, float32 or float64.
        full_matrices: whether U and Vh are square.

    Raises:
        torch.linalg.LinAlgError: numbers that are NaN or infinite.
    """
    try:
        u, s, vh = torch.linalg.svd(matrix, full_matrices=full_matrices)
    except torch.linalg.LinAlgError:
        if not bool(torch.isfinite(matrix).all()):
            raise
        every = matrix.detach().cpu().numpy().reshape(-1, *matrix.shape[-2:])
        found = [scipy.linalg.svd(one, full_matrices=full_matrices, lapack_driver="gesvd") for one in every]
        parts = [torch.from_numpy(np.stack(factors)).to(matrix) for factors in zip(*found, strict=True)]
        u, s, vh = (part.reshape(*matrix.shape[:-2], *part.shape[1:]) for part in parts)
    return u, s, vh
