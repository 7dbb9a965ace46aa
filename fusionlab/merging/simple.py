"""Weighted averaging of parameters (Wortsman et al., "Model soups", 2022, uniform soup)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.merging.registry import State, merge_method


@merge_method("simple")
def simple(states: Sequence[State], weights: Sequence[float]) -> dict[str, Tensor]:
    """The weighted mean of every floating-point parameter and buffer: ``sum_i w_i theta_i``.

    Args:
        states: parameters and buffers by name.
        weights: one for each model, summing to 1.

    Returns:
        The merged state, each tensor in the first model's dtype; the sum is taken in float32 or better.

    Raises:
        InputError: integer buffers differ between the models; there is no mean of those.
    """
    merged = {}
    for name, first in states[0].items():
        if not first.is_floating_point():
            if any(not torch.equal(first, state[name]) for state in states[1:]):
                raise InputError(f"the integer buffer {name!r} differs between the models; expected equal ones")
            merged[name] = first.clone()
            continue
        dtype = torch.promote_types(first.dtype, torch.float32)
        total = torch.zeros_like(first, dtype=dtype)
        for state, weight in zip(states, weights, strict=True):
            total.add_(state[name].to(total), alpha=weight)
        merged[name] = total.to(first.dtype)
    return merged
