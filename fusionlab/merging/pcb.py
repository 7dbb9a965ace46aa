"""PCB-Merging (Du et al., "Parameter competition balancing for model merging", 2024)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.registry import merge_method
from fusionlab.merging.task_vectors import add_to_base, check_fraction, flattened, task_vectors, weighted_sum

# The share of the smallest and of the largest magnitudes of a task vector that are set to the next ones.
OUTLIERS = 1e-4


def _refuse(_: Sequence[float], ratio: float, **__: Any) -> None:
    check_fraction("ratio", ratio)


@merge_method("pcb", needs=("base",), refuse=_refuse)
def pcb(ingredients: Ingredients, lambda_: float = 1.2, ratio: float = 0.05) -> dict[str, Tensor]:
    """Average the task vectors entry by entry, by how large an entry is in its model and how far the models agree.

    An entry's score is ``exp(n m^2) tanh(tau_i sum_j tau_j)``: m is its magnitude, scaled so that a task vector's
    smallest is 0 and its largest 1, without outliers. Of each task vector the entries with the largest scores count, by
    how far their score lies between the least of those (0) and the largest (1): ``theta_base + lambda_ sum_i s_i tau_i
    / sum_i s_i`` (the paper's intra-balancing, inter-balancing and rescaling, as its code has them).

    Args:
        ingredients: models, weights and base. An entry counts by its model's weight times its score, and the sum of
            task vectors is by weight, relative to the mean weight; models without weight take no part,
            nor do those that are the base model.
        lambda_: factor on what is added to the base model, the default is the authors' for vision models.
        ratio: the fraction of each task vector's entries that count, those with the largest scores; above 0, at most 1
            (`pcb_ratio` in the authors' code).

    Returns:
        The merged state, each tensor in the first model's dtype. All task vectors are held in memory at once, since
        every entry competes with all others of its model.

    Raises:
        InputError: a ratio out of range, or integer buffers that differ between the models.
    """
    present = ingredients.present()
    count, weights, names = len(present.states), present.weights, present.floating()
    flat = _flat([task_vectors(present, name) for name in names])

    total = count * weighted_sum(flat, weights)
    kept, scores = torch.zeros_like(total), torch.zeros_like(total)
    for row, weight in zip(flat, weights, strict=True):
        if not bool(row.any()):
            continue  # The base model itself has no entry that could compete.
        lengths = _limited(row.abs(), OUTLIERS, OUTLIERS)
        score = (count * _scaled(lengths).square_()).exp_() * torch.tanh(row * total)
        most = score.max()
        limited = _limited(score, 1 - ratio, 0.0)
        # Where no more than the largest may count, the limit is the largest itself.
        score = (_scaled(limited) if limited.min() < most else (score == most).to(score)).mul_(weight)
        kept.add_(lengths.mul_(row.sign()).mul_(score))
        scores.add_(score)
    merged = lambda_ * kept / scores.clamp(min=1e-12)
    # An infinite change would be cut as an outlier; what is no number stays none.
    merged.masked_fill_(~flat.isfinite().all(0), torch.nan)
    pieces = dict(zip(names, merged.split([present.states[0][name].numel() for name in names]), strict=True))
    return add_to_base(ingredients, lambda name: pieces[name].reshape(ingredients.states[0][name].shape))


def _flat(changes: Sequence[Tensor]) -> Tensor:
    """Task vectors of several parameters side by side, ``(models, numbers)``, in the widest type of any."""
    dtype = torch.float32
    for change in changes:
        dtype = torch.promote_types(dtype, change.dtype)
    device = changes[0].device
    return torch.cat([flattened(change).to(device, dtype) for change in changes], dim=1)


def _limited(values: Tensor, low: float, high: float) -> Tensor:
    """The values, of which the smallest and largest fractions are set to the next ones."""
    count = len(values)
    first, last = int(count * low), int(count * (1 - high) - 1)
    ordered = values.sort().values
    return values.clamp(ordered[min(first, count - 1)], ordered[max(last, 0)])


def _scaled(values: Tensor) -> Tensor:
    """The values, moved and scaled so that the smallest is 0 and the largest 1; ones where all are alike."""
    least, most = values.aminmax()
    return (values - least) / (most - least) if most > least else torch.ones_like(values)
