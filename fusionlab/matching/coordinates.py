"""Maps from unconstrained coordinates to rotations, stretches and factors, which charts of groups are made of."""

import torch
from torch import Tensor

# The largest logarithm of a stretch: a general matrix has a condition number of at most exp(2 * 5), about 22,000, so
# that the twin keeps its function when it is rounded to float32. A descent on few inputs may otherwise flatten a matrix
# until rounding it loses the function.
LARGEST_STRETCH = 5.0


def skew_dimension(size: int) -> int:
    """The number of entries above the diagonal of a skew matrix."""
    return size * (size - 1) // 2


def bounded(symmetric: Tensor) -> Tensor:
    """Symmetric matrices with all eigenvalues within `LARGEST_STRETCH`; small ones hardly change.

    They are divided by ``(1 + |S / L|^8)^(1/8)`` with the Schatten 8-norm, which is at least the largest eigenvalue and
    smooth everywhere, unlike an eigendecomposition.
    """
    fourth = torch.linalg.matrix_power(symmetric / LARGEST_STRETCH, 4)
    return symmetric / (1 + fourth.square().sum((-2, -1), keepdim=True)) ** (1 / 8)


def factors(logarithms: Tensor) -> Tensor:
    """Positive factors, bounded as 1 x 1 matrices."""
    return bounded(logarithms[..., None, None])[..., 0, 0].exp()


def cayley(coordinates: Tensor, size: int) -> Tensor:
    """Rotations of shape ``(..., size, size)`` from the entries above the diagonal of their skew matrices.

    By Cayley's map of a skew matrix A, ``(1 - A / 2)^-1 (1 + A / 2)``: it agrees with the exponential to second order,
    is as exact, and costs a fifth to a fifteenth of it with its gradient. It reaches every rotation that has no half
    turn.

    Args:
        coordinates: shape ``(..., skew_dimension(size))``.
        size: of the rotations.
    """
    rows, columns = torch.triu_indices(size, size, 1, device=coordinates.device)
    upper = coordinates.new_zeros(*coordinates.shape[:-1], size, size)
    upper[..., rows, columns] = coordinates / 2
    skew = upper - upper.mT
    identity = torch.eye(size, dtype=coordinates.dtype, device=coordinates.device)
    # In half precision there is no solver; such coordinates are worked on in float32.
    work = torch.promote_types(coordinates.dtype, torch.float32)
    return torch.linalg.solve((identity - skew).to(work), (identity + skew).to(work)).to(coordinates.dtype)
