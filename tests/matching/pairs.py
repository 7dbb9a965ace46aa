"""Two independent small models, a noisy copy of one, and how far apart they are."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fusionlab.matching.weights import squared_distance, squared_length
from fusionlab.symmetry import Blueprint, blueprint
from tests.symmetry.models import generator, random_model

State = Mapping[str, Tensor]

RESCALES = ("off", "sequential", "joint")
UNCOUPLED = ("heads", "attention.qk", "attention.vo", "ffn")
NAME = "bert-sequence"


def pair(name: str = NAME) -> tuple[nn.Module, nn.Module, Blueprint]:
    source, anchor = random_model(name, seed=0), random_model(name, seed=1)
    return source, anchor, blueprint(anchor)


def noisy(state: State, size: float, seed: int = 5) -> dict[str, Tensor]:
    """The state with Gaussian noise, relative to each parameter's own size."""
    draw = generator(seed)
    return {
        name: x + size * x.std(correction=0) * torch.randn(x.shape, generator=draw, dtype=x.dtype)
        for name, x in state.items()
    }


def distance(first: State, second: State) -> float:
    return squared_distance(first, second) ** 0.5


def norm(state: State) -> float:
    return squared_length(state) ** 0.5
