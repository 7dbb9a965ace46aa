"""Breadcrumbs (Davari, Belilovsky, "Model breadcrumbs: scaling multi-task model merging with sparse masks", 2023)."""

import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.registry import merge_method
from fusionlab.merging.task_vectors import add_to_base, check_fraction, task_vectors, weighted_sum


@merge_method("breadcrumbs", needs=("base",), unit="parameter")
def breadcrumbs(
    ingredients: Ingredients, density: float = 0.2, gamma: float = 0.1, lambda_: float = 1.0
) -> dict[str, Tensor]:
    """Leave out the smallest and the largest changes of every parameter, and add what is left.

    Of each task vector's entries in a parameter the `gamma` largest by magnitude are outliers, and of the rest the
    `density` largest are kept: ``theta_base + lambda_ sum_i w_i mask_i * tau_i``.

    Args:
        ingredients: models, weights and base.
        density: the fraction of a parameter's entries to keep; above 0, at most 1. Like `gamma` it is rounded to the
            nearest whole number of entries, but that one is kept at least. (The paper's masks are by layer and so are
            these; its code masks by row, and the defaults are those of its example.)
        gamma: the fraction of a parameter's entries that are outliers; from 0 up, at most 1 less than `density`.
        lambda_: factor on what is added to the base model; the weights sum to 1, so it is n times the paper's alpha
            for n models of equal weight.

    Returns:
        The merged state, each tensor in the first model's dtype. Of entries of equal magnitude the first count as
        larger.

    Raises:
        InputError: fractions out of range, or integer buffers that differ between the models.
    """
    check_fraction("density", density)
    if not 0 <= gamma <= 1 - density + 1e-12:
        raise InputError(f"gamma is {gamma}; expected a number from 0 to 1 - density, which is {1 - density:g}")

    def change(name: str) -> Tensor:
        changes = task_vectors(ingredients, name)
        flat = changes.flatten(1) if changes.dim() > 1 else changes[:, None]
        count = flat.shape[1]
        kept = max(1, round(density * count))
        outliers = min(round(gamma * count), count - min(kept, count))
        order = flat.abs().argsort(dim=1, descending=True, stable=True)[:, outliers : outliers + kept]
        left = torch.zeros_like(flat).scatter(1, order, flat.gather(1, order))
        return lambda_ * weighted_sum(left.reshape(changes.shape), ingredients.weights)

    return add_to_base(ingredients, change)
