"""DELLA (Deep et al., "DELLA-Merging: reducing interference through magnitude-based sampling", 2024)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.merging.dare import COMBINATIONS, Combination
from fusionlab.merging.draws import drawn
from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.kinds import PerModel
from fusionlab.merging.registry import merge_method
from fusionlab.merging.task_vectors import add_to_base, check_fractions, kept_where, per_model, task_vectors


def _refuse(weights: Sequence[float], density: PerModel, epsilon: float, **_: Any) -> None:
    check_fractions("density", density, len(weights))
    for place, share in enumerate(per_model(density, len(weights))):
        if epsilon < 0 or epsilon >= share or epsilon > 1 - share + 1e-12:
            of_model = f" of model {place}" if isinstance(density, Sequence) else ""
            raise InputError(
                f"epsilon is {epsilon}; expected a number from 0 up, below density{of_model} ({share}) and at most "
                f"1 - density ({1 - share:g})"
            )


@merge_method("della", needs=("base",), unit="parameter", refuse=_refuse, holds=(9, 3))
def della(
    ingredients: Ingredients,
    density: PerModel = 0.7,
    epsilon: float = 0.07,
    lambda_: float = 1.1,
    combination: Combination = "ties",
) -> dict[str, Tensor]:
    """Drop entries of the task vectors at random, small ones more often than large ones; rescale, elect a sign, fuse.

    In each row of a parameter the entries are ranked by magnitude, and kept with probabilities that rise evenly from
    ``density - epsilon`` for the smallest to ``density + epsilon`` for the largest. What is kept is divided by its
    probability (the paper's MagPrune). Then follows the election and disjoint mean of TIES. Rows are along the first
    dimension; a vector is one row.

    Args:
        ingredients: models, weights, base, and the seed of the draws, which are those of `dare`.
        density: the mean probability of keeping an entry (the paper's 1 - p); above 0, at most 1; one number, or one
            for each model.
        epsilon: half the width of the window of probabilities, from 0 up, so that all of them are above 0 and at most
            1. The defaults are those of the example of the authors' code.
        lambda_: factor on what is added to the base model.
        combination: ``ties``, as in the paper; or ``linear``, the weighted sum of task arithmetic.

    Returns:
        The merged state, each tensor in the first model's dtype.

    Raises:
        InputError: fractions out of range or not for so many models, an unknown combination, or integer buffers that
            differ.
    """
    shares = per_model(density, len(ingredients.states))

    def change(name: str) -> Tensor:
        changes = task_vectors(ingredients, name)
        for own, draws, share in zip(changes, drawn(ingredients, name), shares, strict=True):
            probabilities = keeping(own[None], share, epsilon)[0]
            kept = kept_where(draws.to(own.device) < probabilities, own)
            own.div_(probabilities).masked_fill_(~kept, 0.0)
        return lambda_ * COMBINATIONS[combination](changes, ingredients.weights)

    return add_to_base(ingredients, change)


def keeping(changes: Tensor, density: float, epsilon: float) -> Tensor:
    """The probability of keeping each entry of the task vectors of one parameter, both ``(models, *shape)``."""
    if not changes.numel():
        return torch.full_like(changes, density)
    rows = changes.flatten(2) if changes.dim() > 2 else changes.reshape(len(changes), 1, max(1, changes[0].numel()))
    columns = rows.shape[-1]
    if columns < 2 or epsilon == 0:
        return torch.full_like(changes, density)
    ranks = rows.abs().argsort(dim=-1, stable=True).argsort(dim=-1).to(changes.dtype)
    return (density - epsilon + 2 * epsilon * ranks / (columns - 1)).reshape(changes.shape)
