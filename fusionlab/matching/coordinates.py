"""Maps from unconstrained coordinates to rotations, stretches and factors, which charts of groups are made of.

And the directions in which a descent moves such coordinates fastest.
"""

import torch
from torch import Tensor

# The largest logarithm of a stretch: a general matrix has a condition number of at most exp(2 * 5), about 22,000, so
# that the twin keeps its function when it is rounded to float32. A descent on few inputs may otherwise flatten a matrix
# until rounding it loses the function.
LARGEST_STRETCH = 5.0
# An odd polynomial, five times, takes singular values from 0.002 to 1 into 0.68 to 1.13 (Jordan et al., 2024).
QUINTIC, TIMES = (3.4445, -4.7750, 2.0315), 5


def skew_dimension(size: int) -> int:
    """The number of entries above the diagonal of a skew matrix."""
    return size * (size - 1) // 2


def skew_matrices(coordinates: Tensor, size: int) -> Tensor:
    """Skew matrices of shape ``(..., size, size)`` from their entries above the diagonal, row by row."""
    rows, columns = torch.triu_indices(size, size, 1, device=coordinates.device)
    upper = coordinates.new_zeros(*coordinates.shape[:-1], size, size)
    upper[..., rows, columns] = coordinates
    return upper - upper.mT


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
    skew = skew_matrices(coordinates / 2, size)
    identity = torch.eye(size, dtype=coordinates.dtype, device=coordinates.device)
    # In half precision there is no solver; such coordinates are worked on in float32.
    work = torch.promote_types(coordinates.dtype, torch.float32)
    return torch.linalg.solve((identity - skew).to(work), (identity + skew).to(work)).to(coordinates.dtype)


def even(matrices: Tensor) -> Tensor:
    """Matrices with the singular vectors of others, and singular values near one, times the root of their size.

    So their entries have a root mean square near one. Singular values below 0.002 of the Frobenius norm stay smaller,
    and zero stays zero; by the iteration of Jordan et al. ("Muon", 2024), in float32 or better.

    Args:
        matrices: shape ``(..., n, n)``. What is made of skew matrices is skew.
    """
    work = matrices.to(torch.promote_types(matrices.dtype, torch.float32))
    tiny = torch.finfo(work.dtype).tiny
    # By the largest entry first, since squares of small ones vanish.
    found = work / work.abs().amax((-2, -1), keepdim=True).clamp_min(tiny)
    found = found / torch.linalg.matrix_norm(found, keepdim=True).clamp_min(tiny)
    first, third, fifth = QUINTIC
    for _ in range(TIMES):
        gram = found @ found.mT
        found = first * found + (third * gram + fifth * gram @ gram) @ found
    return (found * matrices.shape[-1] ** 0.5).to(matrices.dtype)


def even_rotation(coordinates: Tensor, size: int) -> Tensor:
    """Entries above the diagonal of what `even` makes of their skew matrices.

    Args:
        coordinates: shape ``(..., skew_dimension(size))``.
        size: of the rotations.
    """
    rows, columns = torch.triu_indices(size, size, 1, device=coordinates.device)
    return even(skew_matrices(coordinates, size))[..., rows, columns]
