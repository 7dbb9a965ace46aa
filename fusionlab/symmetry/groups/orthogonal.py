"""Orthogonal groups: all rotations and reflections, and those that keep the all-ones vector."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fusionlab.symmetry.groups.general_linear import Invertible
from fusionlab.symmetry.groups.group import Copies
from fusionlab.symmetry.groups.rotations import embed_beside_ones, random_orthogonal


@dataclass(frozen=True)
class Orthogonal(Invertible):
    """The orthogonal group O(n), reflections included; primal and dual agree."""

    name: ClassVar[str] = "O"
    is_general_linear: ClassVar[bool] = False

    @property
    def meaning(self) -> str:
        return "rotations and reflections"

    @property
    def dimension(self) -> int:
        return self.size * (self.size - 1) // 2

    @property
    def log10_order(self) -> float:
        return math.log10(2)

    def random(self, copies: Copies = (), generator: torch.Generator | None = None) -> Tensor:
        return random_orthogonal(self.size, copies, generator)

    def inverse(self, element: Tensor) -> Tensor:
        return element.double().mT

    def check(self, element: Tensor, copies: Copies) -> str | None:
        if (wrong := super().check(element, copies)) is not None:
            return wrong
        error = (element.double() @ element.double().mT - self.identity(copies)).abs().max()
        return None if error < 1e-6 else "orthogonal matrices"


@dataclass(frozen=True)
class OrthogonalFixingOnes(Orthogonal):
    """Orthogonal matrices that keep the all-ones vector, O(n - 1): they commute with LayerNorm's mean subtraction."""

    name: ClassVar[str] = "O1"

    @property
    def meaning(self) -> str:
        return "rotations and reflections that keep the all-ones vector"

    @property
    def dimension(self) -> int:
        return (self.size - 1) * (self.size - 2) // 2

    @property
    def log10_order(self) -> float:
        return math.log10(2) if self.size > 1 else 0.0

    def random(self, copies: Copies = (), generator: torch.Generator | None = None) -> Tensor:
        return embed_beside_ones(random_orthogonal(self.size - 1, copies, generator))

    def check(self, element: Tensor, copies: Copies) -> str | None:
        if (wrong := super().check(element, copies)) is not None:
            return wrong
        error = (element.double().sum(-1) - 1).abs().max()
        return None if error < 1e-6 else "orthogonal matrices that keep the all-ones vector"
