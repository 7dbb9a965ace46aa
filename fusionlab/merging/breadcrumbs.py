"""Breadcrumbs (Davari, Belilovsky, "Model breadcrumbs: scaling multi-task model merging with sparse masks", 2023)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.kinds import PerModel
from fusionlab.merging.registry import merge_method
from fusionlab.merging.task_vectors import (
    add_to_base,
    check_fractions,
    flattened,
    kept_where,
    per_model,
    task_vectors,
)


def _refuse(weights: Sequence[float], density: PerModel, gamma: float, **_: Any) -> None:
    check_fractions("density", density, len(weights))
    most = 1 - max(per_model(density, len(weights)))
    if not 0 <= gamma <= most + 1e-12:
        largest = "the largest density" if isinstance(density, Sequence) else "density"
        raise InputError(f"gamma is {gamma}; expected a number from 0 to 1 - {largest}, which is {most:g}")


@merge_method("breadcrumbs", needs=("base",), unit="parameter", refuse=_refuse, holds=(9, 3))
def breadcrumbs(
    ingredients: Ingredients, density: PerModel = 0.2, gamma: float = 0.1, lambda_: float = 1.0
) -> dict[str, Tensor]:
    """Leave out the smallest and the largest changes of every parameter, and add what is left.

    Of each task vector's entries in a parameter the `gamma` largest by magnitude are outliers, and of the rest the
    `density` largest are kept: ``theta_base + lambda_ sum_i w_i mask_i * tau_i``.

    Args:
        ingredients: models, weights and base.
        density: the fraction of a parameter's entries to keep; above 0, at most 1; one number, or one for each model.
            Like `gamma` it is rounded to the nearest whole number of entries, but that one is kept at least. (The
            paper's masks are by layer and so are these; its code masks by row, and the defaults are those of its
            example.)
        gamma: the fraction of a parameter's entries that are outliers; from 0 up, at most 1 - `density` of every
            model.
        lambda_: factor on what is added to the base model; the weights sum to 1, so it is n times the paper's alpha
            for n models of equal weight.

    Returns:
        The merged state, each tensor in the first model's dtype. Of entries of equal magnitude the first count as
        larger.

    Raises:
        InputError: fractions out of range or not for so many models, or integer buffers that differ between the models.
    """
    shares = per_model(density, len(ingredients.states))

    def change(name: str) -> Tensor:
        changes = task_vectors(ingredients, name)
        count = changes[0].numel()
        total = changes.new_zeros(count)
        for row, weight, share in zip(flattened(changes), ingredients.weights, shares, strict=True):
            kept = max(1, round(share * count))
            outliers = min(round(gamma * count), count - min(kept, count))
            order = row.abs().argsort(descending=True, stable=True)[outliers : outliers + kept]
            chosen = kept_where(torch.zeros_like(row, dtype=torch.bool).index_fill_(0, order, True), row)
            total += weight * row.where(chosen, 0.0)
        return lambda_ * total.reshape(changes.shape[1:])

    return add_to_base(ingredients, change)
