"""Random parameters for tests of merge methods."""

import torch
from torch import Tensor

State = dict[str, Tensor]


def random_states(count: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> list[State]:
    """Parameters of three shapes, a number alone among them."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {"w": (8, 6), "b": (8,), "scale": ()}
    return [
        {name: torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for name, shape in shapes.items()}
        for _ in range(count)
    ]
