"""Linear assignment by few candidates for each row, certified by prices: large problems in a fraction of the time.

An assignment is optimal if and only if there are prices p of the columns under which every row's column is its best:
C[i, x(i)] - p[x(i)] >= C[i, j] - p[j] for all i and j (linear programming duality; Bertsekas, "A distributed algorithm
for the assignment problem", 1979). Few entries matter for that. So a sparse problem of a few candidates for each row is
solved (shortest augmenting paths, Jonker and Volgenant 1987, by lapx), its prices are computed, and whatever entry of
the dense matrix breaks the condition becomes a candidate in the next round (column generation). What is returned has
been checked against every entry.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

try:
    import lap
except ImportError:  # no wheel for this platform
    lap = None  # type: ignore[assignment]

# How many candidates a row has at first, and how many each may get in a round.
CANDIDATES = 16
# Two to six rounds are usual.
ROUNDS = 20
# More than this share of all entries to add says that the prices are far off, as with many equal rows.
HOPELESS = 1 / 8
# Entries of the matrix that are looked at together: as many as a processor's cache holds.
BLOCK = 2**18
# A rise of prices that is rounding, as a share of the largest price or entry.
NO_GAIN = 1e-13


def sparse_assignment(correlation: Tensor) -> Tensor | None:
    """The permutation with the largest sum of entries, to rounding of the matrix's dtype.

    Args:
        correlation: shape ``(n, n)``, float32 or float64, on the CPU.

    Returns:
        An index ``x`` of shape ``(n,)``, for entries (i, x[i]); no other sum is larger by more than 8 n times the unit
        roundoff of the dtype times the largest entry. None where candidates do not lead to it soon, where
        entries are not finite or all zero, or where lapx is not installed.
    """
    size = len(correlation)
    if lap is None or size == 0:
        return None
    correlation = correlation.detach()
    scale = max(abs(float(bound)) for bound in correlation.aminmax())
    if not math.isfinite(scale) or scale == 0:
        return None
    tolerance = 8 * torch.finfo(correlation.dtype).eps * scale
    prices = _expected_prices(correlation)
    # The diagonal makes sure that there is a permutation among the candidates.
    chosen = torch.cat([_best(correlation, prices), torch.arange(size) * (size + 1)]).unique()
    for _ in range(ROUNDS):
        rows, columns = chosen // size, chosen % size
        values = correlation.reshape(-1)[chosen].double() / scale
        places = _solved(rows, columns, values - prices[columns] / scale)
        prices = scale * _raised(rows, columns, values, places, prices / scale)
        best = correlation.gather(1, places[:, None])[:, 0].double() - prices[places]
        missing = _better(correlation, prices, best + tolerance)
        if missing is None:
            return None
        if not missing.numel():
            return places
        if missing.numel() > size * CANDIDATES // 2:
            missing = _best(correlation, prices)
        known = len(chosen)
        chosen = torch.cat([chosen, missing]).unique()
        if len(chosen) == known:
            return None
    return None


def _expected_prices(correlation: Tensor) -> Tensor:
    """Prices that are right where entries are products of a row's scale, a column's, and a normal variable.

    Rows and columns of like rank go together then, each at about the same quantile q of the normal variable, so that
    prices over columns in the order of their scale s rise by q r ds, where r is the scale of the row of that rank.
    """
    size = len(correlation)
    stride = max(1, size // 1024)
    column_scales, means = torch.std_mean(correlation[::stride].double(), 0, correction=0)
    row_scales = correlation[:, ::stride].double().std(1, correction=0).sort()[0]
    row_scales /= row_scales.square().mean().sqrt().clamp_min(torch.finfo(torch.float64).tiny)
    scales, order = column_scales.sort()
    quantile = torch.special.ndtri(torch.tensor(1 - min(0.5, 4 / size), dtype=torch.float64))
    steps = torch.diff(scales, prepend=scales.new_zeros(1)) * row_scales
    prices = means.clone()
    prices[order] += quantile * steps.cumsum(0)
    return prices


def _blocks(correlation: Tensor, prices: Tensor) -> Iterator[tuple[int, Tensor]]:
    """The number of a first row, with entries less prices for it and some rows after it; overwritten by the next."""
    size = len(correlation)
    at_once = max(1, BLOCK // size)
    prices = prices.to(correlation.dtype)
    worth = correlation.new_empty(min(at_once, size), size)
    for first in range(0, size, at_once):
        rows = correlation[first : first + at_once]
        yield first, torch.sub(rows, prices, out=worth[: len(rows)])


def _best(correlation: Tensor, prices: Tensor) -> Tensor:
    """The flat indices of the entries that are worth most to each row."""
    size = len(correlation)
    count = min(CANDIDATES, size)
    columns = torch.cat([worth.topk(count, sorted=False)[1] for _, worth in _blocks(correlation, prices)])
    return (torch.arange(size)[:, None] * size + columns).reshape(-1)


def _better(correlation: Tensor, prices: Tensor, bounds: Tensor) -> Tensor | None:
    """The flat indices of the entries that are worth more to their row than its bound; None where they are too many."""
    found, count = [], 0
    for first, worth in _blocks(correlation, prices):
        here = bounds[first : first + len(worth)].to(worth.dtype)
        rows = (worth.amax(1) > here).nonzero()[:, 0]
        if rows.numel():
            which, columns = (worth[rows] > here[rows, None]).nonzero(as_tuple=True)
            found.append((rows[which] + first) * len(correlation) + columns)
            count += len(columns)
            if count > HOPELESS * correlation.numel():
                return None
    return torch.cat(found) if found else torch.empty(0, dtype=torch.long)


def _solved(rows: Tensor, columns: Tensor, worth: Tensor) -> Tensor:
    """The best permutation that uses the candidates alone; rows ascend, and entries are about 1 at most."""
    size = int(rows[-1]) + 1
    most = worth.new_full((size,), -torch.inf).scatter_reduce(0, rows, worth, "amax")
    starts = np.concatenate([[0], torch.bincount(rows, minlength=size).cumsum(0).numpy()])
    costs = (most[rows] - worth).numpy()
    return torch.from_numpy(
        lap.lapmod(size, costs, starts.astype(np.int32), columns.numpy().astype(np.int32))[1]
    ).long()


def _raised(rows: Tensor, columns: Tensor, values: Tensor, places: Tensor, prices: Tensor) -> Tensor:
    """The least prices, from these upwards, at which each row's place is its best candidate (Bellman and Ford).

    They are shifted so that their mean is 0.
    """
    mine = places[rows]
    gains = values - values[columns == mine][rows]
    for _ in range(len(places)):
        raised = prices.scatter_reduce(0, columns, prices[mine] + gains, "amax")
        if bool((raised <= prices + NO_GAIN * prices.abs().max().clamp(min=1)).all()):
            break
        prices = raised
    return prices - prices.mean()
