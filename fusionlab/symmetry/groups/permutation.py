"""The symmetric group: units in another order."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fusionlab.symmetry.groups.group import Copies, Group


@dataclass(frozen=True)
class Permutation(Group):
    """The symmetric group: ``(G h)[i] = h[element[i]]``; primal and dual agree."""

    name: ClassVar[str] = "S"
    has_permutations: ClassVar[bool] = True

    @property
    def meaning(self) -> str:
        return "permutations"

    @property
    def dimension(self) -> int:
        return 0

    @property
    def log10_order(self) -> float:
        return math.lgamma(self.size + 1) / math.log(10)

    def identity(self, copies: Copies = ()) -> Tensor:
        return torch.arange(self.size).expand(*copies, self.size).clone()

    def random(self, copies: Copies = (), generator: torch.Generator | None = None) -> Tensor:
        return torch.rand(*copies, self.size, generator=generator, dtype=torch.float64).argsort(-1)

    def inverse(self, element: Tensor) -> Tensor:
        return element.argsort(-1)

    def compose(self, second: Tensor, first: Tensor) -> Tensor:
        return first.take_along_dim(second, -1)

    def act(self, element: Tensor, vectors: Tensor, dual: bool = False) -> Tensor:
        element = element.to(vectors.device)
        if element.ndim == 1:
            return vectors.index_select(-2, element)
        return vectors.take_along_dim(element.unsqueeze(-1), -2)

    def permuting(self, order: Tensor) -> Tensor:
        return order

    def check(self, element: Tensor, copies: Copies) -> str | None:
        if element.shape != (*copies, self.size) or element.dtype != torch.int64:
            return f"an int64 index of shape {(*copies, self.size)}"
        if not torch.equal(element.sort(-1).values, self.identity(copies).to(element.device)):
            return f"every index from 0 to {self.size - 1} once"
        return None
