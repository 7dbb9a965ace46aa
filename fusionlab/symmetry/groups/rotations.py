"""Rotation matrices that several groups are made of: random ones, and ones beside the all-ones vector."""

import torch
from torch import Tensor

from fusionlab.symmetry.groups.group import Copies


def embed_beside_ones(rotation: Tensor) -> Tensor:
    """The ``n x n`` orthogonal matrix that keeps the all-ones vector and acts as `rotation` on its complement.

    Args:
        rotation: shape ``(..., n - 1, n - 1)``, in the basis of `complement_of_ones`.
    """
    size = rotation.shape[-1] + 1
    basis = complement_of_ones(size).to(rotation)
    return basis @ rotation @ basis.mT + 1 / size


def complement_of_ones(size: int) -> Tensor:
    """An orthonormal basis of the vectors with mean zero, shape ``(size, size - 1)``, in float64.

    The last columns of the Householder reflection that takes the all-ones direction to the first axis.
    """
    v = torch.full((size,), size**-0.5, dtype=torch.float64)
    v[0] += 1
    reflection = torch.eye(size, dtype=torch.float64) - 2 * torch.outer(v, v) / v.dot(v)
    return reflection[:, 1:]


def random_orthogonal(size: int, copies: Copies = (), generator: torch.Generator | None = None) -> Tensor:
    """Haar-distributed orthogonal matrices of shape ``(*copies, size, size)``, in float64.

    Mezzadri, "How to generate random matrices from the classical compact groups" (2007): QR of a Gaussian matrix
    with the signs of R's diagonal moved into Q.
    """
    gaussian = torch.randn(*copies, size, size, generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(gaussian)
    found: Tensor = q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    return found
