"""DARE: drop and rescale (Yu et al., "Language models are super Mario", 2024)."""

import hashlib
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from fusionlab.merging.ingredients import PIECE, Ingredients
from fusionlab.merging.registry import merge_method
from fusionlab.merging.task_vectors import add_to_base, check_fraction, disjoint_mean, task_vectors, weighted_sum

Combination = Literal["linear", "ties"]
COMBINATIONS = {"linear": weighted_sum, "ties": disjoint_mean}


@merge_method("dare", needs=("base",), unit="number")
def dare(
    ingredients: Ingredients, density: float = 0.5, lambda_: float = 1.0, combination: Combination = "linear"
) -> dict[str, Tensor]:
    """Drop entries of the task vectors at random, rescale what is left, and combine.

    Each entry is kept with probability `density` (the paper's 1 - p) and divided by it, so that the expected task
    vector is the one there was.

    Args:
        ingredients: models, weights, base, and the seed of the draws. They are made on the processor, and depend on the
            parameter's name, the model's place and the entry's, so that a seed means the same whatever else is merged.
        density: the probability of keeping an entry; above 0, at most 1.
        lambda_: factor on what is added to the base model.
        combination: ``linear``, the weighted sum of task arithmetic; or ``ties``, sign election and disjoint mean.

    Returns:
        The merged state, each tensor in the first model's dtype.

    Raises:
        InputError: a density out of range, an unknown combination, or integer buffers that differ.
    """
    check_fraction("density", density)

    def change(name: str) -> Tensor:
        changes = task_vectors(ingredients, name)
        kept = torch.stack([_kept(ingredients, name, model, density) for model in range(len(changes))])
        rescaled = torch.where(kept.to(changes.device), changes / density, 0.0)
        return lambda_ * COMBINATIONS[combination](rescaled, ingredients.weights)

    return add_to_base(ingredients, change)


def _kept(ingredients: Ingredients, name: str, model: int, density: float) -> Tensor:
    """The entries of one model's parameter, or of a piece of it, that are kept: bool, of its shape."""
    shape = ingredients.states[model][name].shape
    drawn = [torch.rand(count, generator=draw) for draw, count in _draws(ingredients, name, model, shape.numel())]
    return (torch.cat(drawn) < density).reshape(shape)


def _draws(ingredients: Ingredients, name: str, model: int, count: int) -> Iterator[tuple[torch.Generator, int]]:
    """A generator of its own for each piece of a parameter, and how many numbers it draws."""
    for start in range(0, max(count, 1), PIECE):
        place = f"{ingredients.seed} {model} {ingredients.start + start} {name}"
        seed = int.from_bytes(hashlib.sha256(place.encode()).digest()[:8], "big", signed=True)
        yield torch.Generator().manual_seed(seed), min(PIECE, count - start)
