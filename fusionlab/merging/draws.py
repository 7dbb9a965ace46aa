"""Random numbers for the entries of parameters, which mean the same whatever else is merged."""

import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor

from fusionlab.merging.ingredients import PIECE, Ingredients


def drawn(ingredients: Ingredients, name: str) -> Tensor:
    """A number from 0 to 1 for each entry of a parameter, or of a piece of it, in each model: ``(models, *shape)``.

    They are drawn on the processor in float32, and depend on the seed, the parameter's name, the model's place and the
    entry's.

    Args:
        ingredients: models, of which the shapes count, and the seed.
        name: the parameter's.
    """
    return torch.stack([_of_model(ingredients, name, model) for model in range(len(ingredients.states))])


def _of_model(ingredients: Ingredients, name: str, model: int) -> Tensor:
    shape = ingredients.states[model][name].shape
    numbers = [torch.rand(count, generator=draw) for draw, count in _draws(ingredients, name, model, shape.numel())]
    return torch.cat(numbers).reshape(shape)


def _draws(ingredients: Ingredients, name: str, model: int, count: int) -> Iterator[tuple[torch.Generator, int]]:
    """A generator of its own for each piece of a parameter, and how many numbers it draws."""
    for start in range(0, max(count, 1), PIECE):
        place = f"{ingredients.seed} {model} {ingredients.start + start} {name}"
        seed = int.from_bytes(hashlib.sha256(place.encode()).digest()[:8], "big", signed=True)
        yield torch.Generator().manual_seed(seed), min(PIECE, count - start)
