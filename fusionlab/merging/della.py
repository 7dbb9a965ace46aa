"""DELLA (Deep et al., "DELLA-Merging: reducing interference through magnitude-based sampling", 2024)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.merging.dare import COMBINATIONS, Combination
from fusionlab.merging.draws import drawn
from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.registry import merge_method
from fusionlab.merging.task_vectors import add_to_base, check_fraction, kept_where, task_vectors


def _refuse(_: Sequence[float], density: float, epsilon: float, **__: Any) -> None:
    check_fraction("density", density)
    if epsilon < 0 or epsilon >= density or epsilon > 1 - density + 1e-12:
        raise InputError(
            f"epsilon is {epsilon}; expected a number from 0 up, below density ({density}) and at most 1 - density "
            f"({1 - density:g})"
        )


@merge_method("della", needs=("base",), unit="parameter", refuse=_refuse, holds=(9, 3))
def della(
    ingredients: Ingredients,
    density: float = 0.7,
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
        density: the mean probability of keeping an entry (the paper's 1 - p); above 0, at most 1.
        epsilon: half the width of the window of probabilities, from 0 up, so that all of them are above 0 and at most
            1. The defaults are those of the example of the authors' code.
        lambda_: factor on what is added to the base model.
        combination: ``ties``, as in the paper; or ``linear``, the weighted sum of task arithmetic.

    Returns:
        The merged state, each tensor in the first model's dtype.

    Raises:
        InputError: fractions out of range, an unknown combination, or integer buffers that differ.
    """

    def change(name: str) -> Tensor:
        changes = task_vectors(ingredients, name)
        for own, draws in zip(changes, drawn(ingredients, name), strict=True):
            probabilities = keeping(own[None], density, epsilon)[0]
            kept = kept_where(draws.to(own.device) < probabilities, own)
            own.div_(probabilities).masked_fill_(~kept, 0.0)
        return lambda_ * COMBINATIONS[combination](changes, ingredients.weights)

    return add_to_base(ingredients, change)


def keeping(changes: Tensor, density: float, epsilon: float) -> Tensor:
    """The probability of keeping each entry of the task vectors of one parameter, both ``(models, *shape)``."""
    rows = changes.flatten(2) if changes.dim() > 2 else changes.reshape(len(changes), 1, max(1, changes[0].numel()))
    columns = rows.shape[-1]
    if columns < 2 or epsilon == 0:
        return torch.full_like(changes, density)
    ranks = rows.abs().argsort(dim=-1, stable=True).argsort(dim=-1).to(changes.dtype)
    return (density - epsilon + 2 * epsilon * ranks / (columns - 1)).reshape(changes.shape)
