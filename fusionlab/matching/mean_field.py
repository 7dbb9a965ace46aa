"""Means of rotations under a temperature: the mean field of the matrix von Mises-Fisher distribution."""

import torch
from torch import Tensor

from fusionlab.decompositions import svd


def mean_rotation(correlation: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of orthogonal matrices under ``exp(<G, C>)``, a contraction, and how well they fit.

    Args:
        correlation: C, shape ``(..., n, n)``.

    Returns:
        The mean, shape ``(..., n, n)``, and the logarithm of the mean of ``exp(<G, C>)``, shape ``(...)``.
    """
    u, s, vh = svd(correlation.double())
    shrink, gain = shrinkage(s, correlation.shape[-1])
    return u * shrink.unsqueeze(-2) @ vh, gain.sum(-1)


def shrinkage(strength: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The mean cosine between a random unit vector and the direction that it is drawn to, and its integral.

    The ratio of Bessel functions ``I_{n/2} / I_{n/2 - 1}`` in its uniform approximation from below (Amos, "Computation
    of modified Bessel functions and their ratios", 1974): by at most 0.09 in a plane, 0.0025 in 64 dimensions.
    """
    half = size / 2
    root = torch.sqrt(half**2 + strength**2)
    return strength / (half + root), root - half - half * torch.log((half + root) / size)
