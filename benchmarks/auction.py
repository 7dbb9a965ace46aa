"""Linear assignment on any device: the auction algorithm, all rows that have no column bidding at once.

Bertsekas, "The auction algorithm: a distributed relaxation method for the assignment problem" (1988), with scaled
increments. A trial for `on_gpu.py`: fusionlab itself solves assignments on the processor.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Each scale is a fifth of the one before.
FACTOR = 5.0


def auction(worth: Tensor, share: float = 1e-6, rounds: int = 200_000) -> tuple[Tensor, int]:
    """A permutation whose sum of entries is within `share` of the range of entries, times their number, of the most.

    Args:
        worth: shape ``(n, n)``, floating point.
        share: the last increment of prices, of the range of entries; above the roundoff of their type.
        rounds: the most rounds of bids.

    Returns:
        The column of each row, shape ``(n,)``, on the same device; and the number of rounds.

    Raises:
        RuntimeError: more rounds than that.
    """
    size, device = len(worth), worth.device
    span = float(worth.amax() - worth.amin()) or 1.0
    prices = torch.zeros(size, dtype=worth.dtype, device=device)
    column = torch.full((size,), -1, device=device)
    increment, done = span / FACTOR, 0
    while True:
        increment = max(increment, share * span)
        column.fill_(-1)
        owner = torch.full((size,), -1, device=device)
        while bool((free := (column < 0).nonzero()[:, 0]).numel()):
            if (done := done + 1) > rounds:
                raise RuntimeError(f"the auction has not ended after {rounds} rounds")
            best, second = (worth[free] - prices).topk(min(2, size), 1), None
            second = best.values[:, -1]
            wanted = best.indices[:, 0]
            bids = prices[wanted] + best.values[:, 0] - second + increment
            highest = torch.full_like(prices, -torch.inf).scatter_reduce(0, wanted, bids, "amax")
            # Of equal bids the last row's counts.
            winner = torch.full((size,), -1, device=device)
            is_highest = bids == highest[wanted]
            winner.scatter_reduce_(0, wanted[is_highest], free[is_highest], "amax")
            sold = (winner >= 0).nonzero()[:, 0]
            before = owner[sold]
            column[before[before >= 0]] = -1
            owner[sold] = winner[sold]
            column[winner[sold]] = sold
            prices[sold] = highest[sold]
        if increment <= share * span:
            return column, done
        increment /= FACTOR
