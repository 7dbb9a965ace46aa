"""The permutation that brings a source's units closest to an anchor's: linear assignment (the paper's Eq. 7)."""

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

try:
    import lap
except ImportError:  # no wheel for this platform; scipy solves the same problem, more slowly
    lap = None  # type: ignore[assignment]

from fusionlab.matching.sparse_assignment import sparse_assignment

# From this size on candidates are quicker than all entries.
LARGE = 1024

# Unit roundoff of bfloat16 is 2^-8. Two rounded factors and a rounded result put an entry of a product of rows a and
# b at most 3.1 * 2^-8 |a| |b| off, so a row's best entry is the true best if it leads by twice that.
BFLOAT16_MARGIN = 2 * 3.1 * 2.0**-8


def certified_assignment(correlation: Tensor, margin: Tensor | None = None) -> Tensor | None:
    """The best permutation if it can be read off: the row-wise argmax, when that is a permutation.

    Args:
        correlation: shape ``(n, n)``, entry (i, j) for source unit j at anchor unit i.
        margin: shape ``(n,)``, by how much each row's best entry must lead for the argmax to be sure although the
            entries are rounded; None where they are exact.

    Returns:
        The permutation, shape ``(n,)``, or None where this does not decide.
    """
    best, order = correlation.max(-1)
    if torch.bincount(order, minlength=order.numel()).max() > 1:
        return None
    if margin is not None:
        runner_up = correlation.scatter(-1, order[:, None], -torch.inf).amax(-1)
        if bool((best - runner_up <= margin).any()):
            return None
    return order


def assignment(correlation: Tensor) -> Tensor:
    """The permutation of the source's units that maximises their summed correlation with the anchor's (Eq. 7).

    Args:
        correlation: C = B A^T, shape ``(n, n)``.

    Returns:
        An index ``p`` of shape ``(n,)``: source unit ``p[i]`` goes to place ``i``; on the CPU.
    """
    if (certain := certified_assignment(correlation)) is not None:
        return certain.cpu()
    correlation = correlation.cpu()
    if len(correlation) >= LARGE:
        if (found := sparse_assignment(correlation)) is not None:
            return found
        empty = [(correlation == 0).all(dim) for dim in (0, 1)]
        if empty[0].any() or empty[1].any():
            if empty[0].sum() >= empty[1].sum():
                return _beside_empty(correlation, empty[0])
            return _beside_empty(correlation.T, empty[1]).argsort()
    cost = correlation.numpy()
    if lap is not None:
        # float32 costs halve the solver's time; lapjvs works on a copy.
        return torch.from_numpy(lap.lapjvs(-cost.astype("float32", copy=False))[2]).long()
    return torch.from_numpy(linear_sum_assignment(cost, maximize=True)[1]).long()


def _beside_empty(correlation: Tensor, empty: Tensor) -> Tensor:
    """The best permutation where some source units have no correlation with any, as new units of a grown model.

    These go wherever the others leave a place: solved with them, all of their equal entries would be looked at.

    Args:
        correlation: shape ``(n, n)``.
        empty: bool, shape ``(n,)``, those source units.
    """
    units = torch.where(~empty)[0]
    _, chosen = linear_sum_assignment(correlation[:, units].T.numpy(), maximize=True)
    places, free = torch.from_numpy(chosen).long(), torch.ones_like(empty)
    free[places] = False
    order = torch.empty(len(empty), dtype=torch.long)
    order[places], order[free] = units, torch.where(empty)[0]
    return order
