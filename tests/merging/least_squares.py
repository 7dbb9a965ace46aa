"""Small problems of least squares for RegMean."""

import torch
from torch import Tensor

from fusionlab.statistics import Grams, LinearMap, basis_of
from tests.symmetry.models import generator

State = dict[str, Tensor]


IN, OUT = 6, 4


MAPS = {
    "a.weight": LinearMap("x", 1, "a.bias"),
    "c.weight": LinearMap("x", 0, None),
    "d.weight": LinearMap("x", 1, "d.bias"),
}


def random_state(seed: int) -> State:
    """Two Linear of different width with a bias and a Conv1D without one, which read the same input, and a gain."""
    draw = generator(seed)
    shapes = {"a.weight": (OUT, IN), "a.bias": (OUT,), "c.weight": (IN, 3), "gain": (IN,)}
    shapes |= {"d.weight": (5, IN), "d.bias": (5,)}
    return {name: torch.randn(shape, generator=draw, dtype=torch.float64) for name, shape in shapes.items()}


def random_inputs(seed: int, rows: int = 40) -> Tensor:
    """Correlated inputs of uneven size with a mean of their own, shape ``(rows, IN)``."""
    draw = generator(100 + seed)
    mixing, mean = torch.randn(IN, IN, generator=draw).double(), torch.randn(IN, generator=draw).double()
    return torch.randn(rows, IN, generator=draw, dtype=torch.float64) @ mixing + mean


def grams_of(state: State, inputs: Tensor) -> Grams:
    """Made by hand."""
    x = torch.cat((inputs, torch.ones(len(inputs), 1, dtype=torch.float64)), 1)
    return Grams(
        architecture="toy",
        basis=basis_of(state),
        examples=len(x),
        matrices={"x": x.mT @ x},
        rows={"x": len(x)},
        maps=MAPS,
    )
