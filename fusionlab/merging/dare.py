"""DARE: drop and rescale (Yu et al., "Language models are super Mario", 2024)."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from fusionlab.merging.draws import drawn
from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.kinds import PerModel
from fusionlab.merging.registry import merge_method
from fusionlab.merging.task_vectors import (
    add_to_base,
    check_fractions,
    disjoint_mean,
    kept_where,
    per_model,
    task_vectors,
    weighted_sum,
)

Combination = Literal["linear", "ties"]
COMBINATIONS = {"linear": weighted_sum, "ties": disjoint_mean}


def _refuse(weights: Sequence[float], density: PerModel, **_: Any) -> None:
    check_fractions("density", density, len(weights))


@merge_method("dare", needs=("base",), unit="number", refuse=_refuse)
def dare(
    ingredients: Ingredients, density: PerModel = 0.5, lambda_: float = 1.0, combination: Combination = "linear"
) -> dict[str, Tensor]:
    """Drop entries of the task vectors at random, rescale what is left, and combine.

    Each entry is kept with probability `density` (the paper's 1 - p) and divided by it, so that the expected task
    vector is the one there was.

    Args:
        ingredients: models, weights, base, and the seed of the draws. They are made on the processor, and depend on the
            parameter's name, the model's place and the entry's, so that a seed means the same whatever else is merged.
        density: the probability of keeping an entry; above 0, at most 1; one number, or one for each model.
        lambda_: factor on what is added to the base model.
        combination: ``linear``, the weighted sum of task arithmetic; or ``ties``, sign election and disjoint mean.

    Returns:
        The merged state, each tensor in the first model's dtype.

    Raises:
        InputError: densities out of range or not for so many models, an unknown combination, or integer buffers that
            differ.
    """
    shares = per_model(density, len(ingredients.states))

    def change(name: str) -> Tensor:
        changes = task_vectors(ingredients, name)
        for own, draws, share in zip(changes, drawn(ingredients, name), shares, strict=True):
            kept = kept_where((draws < share).to(own.device), own)
            own.copy_(torch.where(kept, own / share, 0.0))
        return lambda_ * COMBINATIONS[combination](changes, ingredients.weights)

    return add_to_base(ingredients, change)
