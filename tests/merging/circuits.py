"""Circuits of small models."""

import torch
from torch import Tensor

from fusionlab.merging.circuit import circuits
from fusionlab.symmetry import Alignment, Blueprint
from tests.symmetry.models import generator


def rebased(state: dict[str, Tensor], description: Blueprint, seed: int) -> dict[str, Tensor]:
    """The same model with a random basis in every head and every space that is merged as a circuit."""
    names = {found.space.name for found in circuits(description)}
    drawn = Alignment.random(description, generator(seed)).elements
    return Alignment(description, {n: e for n, e in drawn.items() if n in names}).apply(state)


def products(state: dict[str, Tensor], layer: int = 0) -> tuple[Tensor, Tensor]:
    """Q^T K and O V of all heads of the small ViT, biases included, shapes ``(3, 25, 25)`` and ``(3, 25, 24)``."""
    at = f"vit.layers.{layer}.attention"
    q, k, v = (
        torch.cat((state[f"{at}.{n}_proj.weight"], state[f"{at}.{n}_proj.bias"][:, None]), 1).unflatten(0, (3, 8))
        for n in "qkv"
    )
    o = state[f"{at}.o_proj.weight"].unflatten(1, (3, 8)).movedim(0, -1)
    return q.mT @ k, v.mT @ o
