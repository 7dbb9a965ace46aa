"""Weights of several models, which sum to 1."""

import math
from collections.abc import Sequence

from fusionlab.errors import InputError


def merge_weights(weights: Sequence[float] | None, count: int, name: str = "weights") -> list[float]:
    """One weight for each model, summing to 1.

    Args:
        weights: any finite, non-negative numbers, scaled to sum to 1; None for equal weights.
        count: how many models there are.
        name: of the weights, for the sentence.

    Raises:
        InputError: another number of weights, a negative one, none above zero, or a sum that is too large.
    """
    if weights is None:
        return [1 / count] * count
    if len(weights) != count:
        raise InputError(f"{name} has {len(weights)} numbers for {count} models; expected one for each")
    total = sum(weights)
    if any(not math.isfinite(w) or w < 0 for w in weights) or total == 0:
        listed = ", ".join(map(str, weights))
        raise InputError(f"{name} are {listed}; expected numbers from 0 up, one of them above 0")
    if not math.isfinite(total):
        raise InputError(f"{name} are {', '.join(map(str, weights))}, whose sum is no number; expected smaller ones")
    return [w / total for w in weights]
