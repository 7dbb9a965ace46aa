"""Signs: each coordinate may be turned round."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fusionlab.symmetry.groups.group import Copies, Group


@dataclass(frozen=True)
class Signs(Group):
    """A sign for each coordinate; elements have shape ``(*copies, size)``, primal and dual agree."""

    name: ClassVar[str] = "Z2"

    @property
    def is_factor(self) -> bool:
        return self.size == 1

    @property
    def dimension(self) -> int:
        return 0

    @property
    def log10_order(self) -> float:
        return self.size * math.log10(2)

    def identity(self, copies: Copies = ()) -> Tensor:
        return torch.ones(*copies, self.size, dtype=torch.float64)

    def random(self, copies: Copies = (), generator: torch.Generator | None = None) -> Tensor:
        heads = torch.randint(2, (*copies, self.size), generator=generator)
        return 1 - 2 * heads.double()

    def inverse(self, element: Tensor) -> Tensor:
        return element

    def compose(self, second: Tensor, first: Tensor) -> Tensor:
        return second * first

    def act(self, element: Tensor, vectors: Tensor, dual: bool = False) -> Tensor:
        return element.to(vectors).unsqueeze(-1) * vectors

    def check(self, element: Tensor, copies: Copies) -> str | None:
        if element.shape != (*copies, self.size) or not element.is_floating_point():
            return f"a real tensor of shape {(*copies, self.size)}"
        return None if bool((element.abs() == 1).all()) else "factors of 1 and -1"
