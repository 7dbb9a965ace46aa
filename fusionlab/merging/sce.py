"""SCE: select, calculate, erase (Wan et al., "FuseChat: knowledge fusion of chat models", 2024)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.registry import merge_method
from fusionlab.merging.task_vectors import (
    add_to_base,
    agreeing_mean,
    check_fraction,
    flattened,
    task_vectors,
    weighted_sum,
)


def _refuse(_: Sequence[float], density: float, **__: Any) -> None:
    check_fraction("density", density)


@merge_method("sce", needs=("base",), unit="parameter", refuse=_refuse, holds=(2, 4))
def sce(ingredients: Ingredients, density: float = 0.1, lambda_: float = 1.0) -> dict[str, Tensor]:
    """Keep the entries on which models differ most, weigh models by how much they changed there, erase minority signs.

    For each parameter: of the entries with the largest variance over the models the task vectors are kept, all others
    are zero (select). A model's coefficient is its share of the sum of their squares (calculate). The sign of an
    entry's sum is elected, and the models that agree are averaged by coefficient (erase).

    Args:
        ingredients: models, weights and base. A coefficient is multiplied by the model's weight; models without weight
            take no part in the variance either.
        density: the fraction of entries to keep (the paper's tau), of those that are not the same in all models; above
            0, at most 1, where nothing is selected. It is rounded to the nearest whole number, at least one; entries of
            the same variance as the least of them are kept too.
        lambda_: factor on what is added to the base model; the paper has none.

    Returns:
        The merged state, each tensor in the first model's dtype. A parameter that all models changed alike is the base
        model's where the density is below 1. Where a single model has a weight nothing is selected.

    Raises:
        InputError: a density out of range, or integer buffers that differ between the models.
    """
    present = ingredients.present()
    weights = present.weights

    def change(name: str) -> Tensor:
        changes = task_vectors(present, name)
        if density < 1 and len(changes) > 1:
            changes *= _selected(changes, density)
        squares = flattened(changes).square().sum(1)
        coefficients = squares * squares.new_tensor(weights)
        total = float(coefficients.sum())
        shares = (coefficients / total).tolist() if total > 0 else weights
        return lambda_ * agreeing_mean(changes, shares, weighted_sum(changes, weights).sign_())

    return add_to_base(ingredients, change)


def _selected(changes: Tensor, density: float) -> Tensor:
    """True where the variance over the models is among the largest, shape of one task vector."""
    # The mean of equal numbers need not be that number, to rounding.
    differs = (changes != changes[0]).any(0)
    different = int(differs.sum())
    if different == 0:
        return differs
    variance = torch.where(differs, (changes - changes.mean(0)).square().mean(0), 0.0)
    least = variance.flatten().topk(max(1, round(density * different))).values[-1]
    return (variance >= least) & differs
