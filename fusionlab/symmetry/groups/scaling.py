"""Scales: a factor for each coordinate."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fusionlab.symmetry.groups.group import Copies, Group


@dataclass(frozen=True)
class Scale(Group):
    """One non-zero factor for each coordinate: positive ones, or any sign where `signed`.

    Elements have shape ``(*copies, size)``.
    """

    signed: bool = False
    name: ClassVar[str] = "R+"

    @property
    def is_factor(self) -> bool:
        return self.size == 1

    @property
    def dimension(self) -> int:
        return self.size

    @property
    def log10_order(self) -> float:
        return self.size * math.log10(2) if self.signed else 0.0

    def identity(self, copies: Copies = ()) -> Tensor:
        return torch.ones(*copies, self.size, dtype=torch.float64)

    def random(self, copies: Copies = (), generator: torch.Generator | None = None) -> Tensor:
        factors = torch.rand(*copies, self.size, generator=generator, dtype=torch.float64).add(-0.5).exp()
        if not self.signed:
            return factors
        return factors * torch.rand(*copies, self.size, generator=generator, dtype=torch.float64).sub(0.5).sign()

    def inverse(self, element: Tensor) -> Tensor:
        return 1 / element.double()

    def compose(self, second: Tensor, first: Tensor) -> Tensor:
        return second.double() * first.double()

    def act(self, element: Tensor, vectors: Tensor, dual: bool = False) -> Tensor:
        factors = self.inverse(element) if dual else element
        return factors.to(vectors).unsqueeze(-1) * vectors

    def check(self, element: Tensor, copies: Copies) -> str | None:
        if element.shape != (*copies, self.size) or not element.is_floating_point():
            return f"a real tensor of shape {(*copies, self.size)}"
        usable = torch.isfinite(element) & (element != 0) if self.signed else torch.isfinite(element) & (element > 0)
        return None if bool(usable.all()) else f"finite {'non-zero' if self.signed else 'positive'} factors"

    @property
    def label(self) -> str:
        return "R*" if self.signed else "R+"

    @property
    def meaning(self) -> str:
        return "a factor of either sign" if self.signed else "a positive factor"
