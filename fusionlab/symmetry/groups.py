"""The groups that may act on a space, and how one element acts, inverts and composes.

An element is one tensor. Its leading dimensions are *copies* (one element for each attention head, say), its
trailing ones are the element itself: an index of shape ``(*copies, n)`` for a permutation, a matrix of shape
``(*copies, n, n)`` otherwise. Vectors of the space transform as ``h -> G h`` (primal); whatever is contracted
with them transforms as ``w -> G^-T w`` (dual), so that ``<w, h>`` never changes.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

Copies = tuple[int, ...]


@dataclass(frozen=True)
class Group(ABC):
    """A group acting on vectors of length `size`."""

    size: int
    name: ClassVar[str]

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Number of continuous degrees of freedom of one element."""

    @property
    @abstractmethod
    def log10_order(self) -> float:
        """Decimal logarithm of the number of discrete choices (0 for a connected group)."""

    @abstractmethod
    def identity(self, copies: Copies = ()) -> Tensor:
        """The neutral element, once for each copy."""

    @abstractmethod
    def random(self, copies: Copies = (), generator: torch.Generator | None = None) -> Tensor:
        """A random element for each copy, well-conditioned, in float64 where it is a matrix."""

    @abstractmethod
    def inverse(self, element: Tensor) -> Tensor:
        """The inverse element."""

    @abstractmethod
    def compose(self, second: Tensor, first: Tensor) -> Tensor:
        """The element that acts as `first`, then `second`."""

    @abstractmethod
    def act(self, element: Tensor, vectors: Tensor, dual: bool = False) -> Tensor:
        """Act on ``vectors`` of shape ``(*batch, size, features)``; ``element``'s copies broadcast over ``batch``."""

    @abstractmethod
    def check(self, element: Tensor, copies: Copies) -> str | None:
        """Say what is wrong with `element` as `copies` elements of this group, or None."""

    def __str__(self) -> str:
        return f"{self.name}({self.size})"


@dataclass(frozen=True)
class Permutation(Group):
    """The symmetric group: ``(G h)[i] = h[element[i]]``; primal and dual agree."""

    name: ClassVar[str] = "S"

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

    def check(self, element: Tensor, copies: Copies) -> str | None:
        if element.shape != (*copies, self.size) or element.dtype != torch.int64:
            return f"an int64 index of shape {(*copies, self.size)}"
        if not torch.equal(element.sort(-1).values, self.identity(copies).to(element.device)):
            return f"every index from 0 to {self.size - 1} once"
        return None


@dataclass(frozen=True)
class Invertible(Group):
    """The general linear group GL(n). Orthogonal matrices and positive scales are among its elements."""

    name: ClassVar[str] = "GL"

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
        return torch.linalg.inv(element.double())

    def compose(self, second: Tensor, first: Tensor) -> Tensor:
        return second.double() @ first.double()

    def act(self, element: Tensor, vectors: Tensor, dual: bool = False) -> Tensor:
        matrix = self.inverse(element).mT if dual else element
        return matrix.to(vectors) @ vectors

    def check(self, element: Tensor, copies: Copies) -> str | None:
        if element.shape != (*copies, self.size, self.size) or not element.is_floating_point():
            return f"a real tensor of shape {(*copies, self.size, self.size)}"
        full = torch.isfinite(element).all() and (torch.linalg.matrix_rank(element.double()) == self.size).all()
        if not bool(full):
            return "finite, invertible matrices"
        return None


@dataclass(frozen=True)
class Orthogonal(Invertible):
    """The orthogonal group O(n), reflections included; primal and dual agree."""

    name: ClassVar[str] = "O"

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


def random_orthogonal(size: int, copies: Copies = (), generator: torch.Generator | None = None) -> Tensor:
    """Haar-distributed orthogonal matrices of shape ``(*copies, size, size)``, in float64.

    Mezzadri, "How to generate random matrices from the classical compact groups" (2007): QR of a Gaussian matrix
    with the signs of R's diagonal moved into Q.
    """
    gaussian = torch.randn(*copies, size, size, generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(gaussian)
    return q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
