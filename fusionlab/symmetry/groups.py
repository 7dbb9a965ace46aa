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


@dataclass(frozen=True)
class OrthogonalFixingOnes(Orthogonal):
    """Orthogonal matrices that keep the all-ones vector, O(n - 1): they commute with LayerNorm's mean subtraction."""

    name: ClassVar[str] = "O1"

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


@dataclass(frozen=True)
class Scale(Group):
    """One non-zero factor for each coordinate: positive ones, or any sign where `signed`.

    Elements have shape ``(*copies, size)``.
    """

    signed: bool = False
    name: ClassVar[str] = "R+"

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

    def __str__(self) -> str:
        return f"{'R*' if self.signed else 'R+'}({self.size})"


@dataclass(frozen=True)
class Rotary(Group):
    """What commutes with rotary position embeddings: for each plane a rotation and a positive scale.

    A plane is a pair of coordinates that RoPE (Su et al., "RoFormer", 2021) turns by one frequency: ``(f, f + n/2)``
    in the half-split layout of transformers' Llama, ``(2f, 2f + 1)`` in the interleaved one of GPT-J. Elements are
    complex numbers ``c`` as real tensors of shape ``(*copies, n/2, 2)``; a plane's vector z becomes ``c z`` (primal)
    or ``z / conj(c)`` (dual), so that ``Re(conj(q) exp(i phase) k)`` never changes.
    """

    interleaved: bool = False
    name: ClassVar[str] = "C*"

    @property
    def dimension(self) -> int:
        return self.size

    @property
    def log10_order(self) -> float:
        return 0.0

    def identity(self, copies: Copies = ()) -> Tensor:
        return torch.view_as_real(torch.ones(*copies, self.size // 2, dtype=torch.complex128))

    def random(self, copies: Copies = (), generator: torch.Generator | None = None) -> Tensor:
        modulus, angle = torch.rand(2, *copies, self.size // 2, generator=generator, dtype=torch.float64)
        return torch.view_as_real(torch.polar((modulus - 0.5).exp(), 2 * math.pi * angle))

    def inverse(self, element: Tensor) -> Tensor:
        return torch.view_as_real(1 / _complex(element))

    def compose(self, second: Tensor, first: Tensor) -> Tensor:
        return torch.view_as_real(_complex(second) * _complex(first))

    def act(self, element: Tensor, vectors: Tensor, dual: bool = False) -> Tensor:
        factor = _complex(element)
        factor = torch.view_as_real(1 / factor.conj() if dual else factor).to(vectors)
        c, s = factor[..., 0, None], factor[..., 1, None]
        first, second = self.planes(vectors)
        return self.from_planes(c * first - s * second, s * first + c * second)

    def planes(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """The two coordinates of every plane, each of shape ``(*batch, size / 2, features)``."""
        if self.interleaved:
            return vectors[..., 0::2, :], vectors[..., 1::2, :]
        return vectors[..., : self.size // 2, :], vectors[..., self.size // 2 :, :]

    def from_planes(self, first: Tensor, second: Tensor) -> Tensor:
        """Vectors of shape ``(*batch, size, features)`` from the coordinates of every plane."""
        return torch.stack((first, second), -2).flatten(-3, -2) if self.interleaved else torch.cat((first, second), -2)

    def check(self, element: Tensor, copies: Copies) -> str | None:
        if element.shape != (*copies, self.size // 2, 2) or not element.is_floating_point():
            return f"a real tensor of shape {(*copies, self.size // 2, 2)}"
        usable = torch.isfinite(element).all() and (element.square().sum(-1) > 0).all()
        return None if bool(usable) else "finite, non-zero complex numbers"


def _complex(element: Tensor) -> Tensor:
    return torch.view_as_complex(element.double().contiguous())


def embed_beside_ones(rotation: Tensor) -> Tensor:
    """The ``n x n`` orthogonal matrix that keeps the all-ones vector and acts as `rotation` on its complement.

    Args:
        rotation: shape ``(..., n - 1, n - 1)``, in the basis of `complement_of_ones`.
    """
    size = rotation.shape[-1] + 1
    basis = complement_of_ones(size).to(rotation)
    return basis @ rotation @ basis.mT + 1 / size


def complement_of_ones(size: int) -> Tensor:
    """An orthonormal basis of the vectors with mean zero, shape ``(size, size - 1)``, in float64.

    The last columns of the Householder reflection that takes the all-ones direction to the first axis.
    """
    v = torch.full((size,), size**-0.5, dtype=torch.float64)
    v[0] += 1
    reflection = torch.eye(size, dtype=torch.float64) - 2 * torch.outer(v, v) / v.dot(v)
    return reflection[:, 1:]


def random_orthogonal(size: int, copies: Copies = (), generator: torch.Generator | None = None) -> Tensor:
    """Haar-distributed orthogonal matrices of shape ``(*copies, size, size)``, in float64.

    Mezzadri, "How to generate random matrices from the classical compact groups" (2007): QR of a Gaussian matrix
    with the signs of R's diagonal moved into Q.
    """
    gaussian = torch.randn(*copies, size, size, generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(gaussian)
    return q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
