"""Model Stock (Jang et al., "Model Stock: all we need is just a few fine-tuned models", 2024)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.products import inner_products
from fusionlab.merging.registry import merge_method
from fusionlab.merging.task_vectors import add_to_base, task_vectors, weighted_sum


def _refuse(weights: Sequence[float]) -> None:
    if sum(weight > 0 for weight in weights) < 2:
        raise InputError("stock measures angles between models; expected at least two weights above 0")


@merge_method("stock", needs=("base",), unit="parameter", refuse=_refuse, holds=(1, 6))
def stock(ingredients: Ingredients) -> dict[str, Tensor]:
    """Interpolate between the base model and the mean, as far as the angles between the task vectors say.

    Fine-tuned models lie around a centre, each off it in a direction of its own. With rho the cosine between task
    vectors, the point nearest to the centre on the line from base to mean is ``base + t (mean - base)``,
    ``t = rho / (rho + (1 - rho) sum_i w_i^2)``; for equal weights the paper's ``N rho / (1 + (N - 1) rho)``. Each
    parameter has its own rho: the mean over all pairs of models, a pair counting by the product of its weights, and no
    less than 0 (the paper's picture has no negative ones).

    Args:
        ingredients: models, weights and base.

    Returns:
        The merged state, each tensor in the first model's dtype.

    Raises:
        InputError: fewer than two models have a weight, or integer buffers differ between the models.
    """

    def change(name: str) -> Tensor:
        changes = task_vectors(ingredients, name)
        return _ratio(changes, ingredients) * weighted_sum(changes, ingredients.weights)

    return add_to_base(ingredients, change)


def _ratio(changes: Tensor, ingredients: Ingredients) -> float:
    """The interpolation ratio t of one parameter, of which `changes` holds the task vectors."""
    weights = torch.tensor(ingredients.weights, dtype=torch.float64)
    products = inner_products(list(changes))
    # A task vector of zeros has no direction, and no cosine but 0.
    lengths = products.diagonal().sqrt().clamp(min=1e-12)
    pairs = torch.outer(weights, weights).fill_diagonal_(0)
    cosine = float((pairs * products / torch.outer(lengths, lengths)).sum() / pairs.sum())
    rho = min(max(cosine, 0.0), 1.0)
    return rho / (rho + (1 - rho) * float(weights.square().sum()))
