"""The general linear group: every invertible matrix."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fusionlab.symmetry.groups.group import Copies, Group
from fusionlab.symmetry.groups.rotations import random_orthogonal


@dataclass(frozen=True)
class Invertible(Group):
    """The general linear group GL(n). Orthogonal matrices and positive scales are among its elements."""

    name: ClassVar[str] = "GL"
    is_general_linear: ClassVar[bool] = True
    has_permutations: ClassVar[bool] = True

    @property
    def meaning(self) -> str:
        return "every invertible matrix"

    @property
    def dimension(self) -> int:
        return self.size**2

    @property
    def log10_order(self) -> float:
        return 0.0

    def identity(self, copies: Copies = ()) -> Tensor:
        return torch.eye(self.size, dtype=torch.float64).expand(*copies, self.size, self.size).clone()

    def random(self, copies: Copies = (), generator: torch.Generator | None = None) -> Tensor:
        stretch = torch.rand(*copies, 1, self.size, generator=generator, dtype=torch.float64).add(-0.5).exp()
        return (
            random_orthogonal(self.size, copies, generator) * stretch @ random_orthogonal(self.size, copies, generator)
        )

    def inverse(self, element: Tensor) -> Tensor:
        found: Tensor = torch.linalg.inv(element.double())
        return found

    def compose(self, second: Tensor, first: Tensor) -> Tensor:
        return second.double() @ first.double()

    def act(self, element: Tensor, vectors: Tensor, dual: bool = False) -> Tensor:
        matrix = self.inverse(element).mT if dual else element
        return matrix.to(vectors) @ vectors

    def permuting(self, order: Tensor) -> Tensor:
        return torch.eye(self.size, dtype=torch.float64)[order]

    def check(self, element: Tensor, copies: Copies) -> str | None:
        if element.shape != (*copies, self.size, self.size) or not element.is_floating_point():
            return f"a real tensor of shape {(*copies, self.size, self.size)}"
        full = torch.isfinite(element).all() and (torch.linalg.matrix_rank(element.double()) == self.size).all()
        if not bool(full):
            return "finite, invertible matrices"
        return None
