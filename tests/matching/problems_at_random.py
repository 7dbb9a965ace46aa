"""Random problems for the solvers."""

import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.symmetry.models import generator

seeds = st.integers(0, 2**31)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)
