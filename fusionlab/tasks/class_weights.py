"""Weights that let rare classes count more in the training loss."""

from typing import Literal

import torch
from torch import Tensor

from fusionlab.errors import InputError

Balance = Literal["sqrt", "inverse"]


def balanced_weights(counts: Tensor, balance: Balance) -> Tensor:
    """Weights that fall with how often a class occurs: ``mean(n) / n`` with ``n`` its count or the root of it.

    ``inverse`` is scikit-learn's ``balanced``; ``sqrt`` is what the reference code of the paper trains DeBERTa with.

    Args:
        counts: how often each class occurs, shape ``(..., classes)``; classes of a row are weighted among each other.
        balance: how strongly rare classes gain.

    Returns:
        Weights of the same shape; 1 for a class that never occurs, which then has no part in the mean.

    Raises:
        InputError: an unknown balance.
    """
    if balance not in ("sqrt", "inverse"):
        raise InputError(f"class_weights is {balance!r}, but sqrt, inverse or a list of numbers was expected")
    sizes = counts.double().sqrt() if balance == "sqrt" else counts.double()
    there = counts > 0
    mean = sizes.sum(-1, keepdim=True) / there.sum(-1, keepdim=True).clamp_min(1)
    return torch.where(there, mean / sizes.clamp_min(1), 1.0).float()
