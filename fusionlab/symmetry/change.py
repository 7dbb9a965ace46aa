"""The change of outputs of a model, by which a symmetry is told from what is none."""

from __future__ import annotations

import torch
from torch import Tensor

# What is masked is a constant of the code from here on, where it is so many times larger than all that is computed.
_CONSTANT, _TIMES = 1e4, 100.0


def relative_change(out: Tensor, expected: Tensor) -> float:
    """The largest difference of outputs, relative to the largest that the model computes; NaN where one is NaN.

    Numbers that stand in the place of what is masked, such as -1e9, are held against each other alone: beside them any
    difference would be small.

    Args:
        out: what a model computes now.
        expected: what it is to compute, of the same shape.
    """
    if not expected.numel():
        return 0.0
    size, change = expected.abs(), (out - expected).abs()
    largest = size.max()
    if largest >= _CONSTANT:
        is_masked = size >= _CONSTANT
        computed = size.masked_fill(is_masked, 0).max()
        if 0 < _TIMES * computed <= size.masked_fill(~is_masked, torch.inf).min():
            change = torch.where(is_masked, change / largest, change / computed)
            return float(change.max())
    return float(change.max() / largest) if largest > 0 else float(change.max())
