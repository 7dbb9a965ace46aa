"""Numbers of no account: of a model of which nothing but its architecture is looked at."""

from __future__ import annotations

import zlib

import torch
from torch import Tensor

# The size of the numbers beside those that vectors start with.
_NOISE = 0.1


def numbers_of_no_account(name: str, parameter: Tensor) -> Tensor:
    """Numbers for a parameter that hide nothing that its part does, as zeros would; the same for one name and shape.

    Args:
        name: of the parameter.
        parameter: as its class makes it; of a matrix no number is looked at.

    Returns:
        Shape of the parameter, float64.
    """
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    noise = _NOISE * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return noise + parameter if is_vector(parameter) else noise


def is_vector(parameter: Tensor) -> bool:
    """True if a parameter has one dimension at most that is longer than one."""
    return parameter.numel() == max(parameter.shape, default=1)
