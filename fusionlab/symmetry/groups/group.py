"""A group that may act on a space: how one of its elements acts, inverts and composes.

An element is one tensor. Its leading dimensions are *copies* (one element for each attention head, say), its
trailing ones are the element itself: an index of shape ``(*copies, n)`` for a permutation, a matrix of shape
``(*copies, n, n)`` otherwise. Vectors of the space transform as ``h -> G h`` (primal); whatever is contracted
with them transforms as ``w -> G^-T w`` (dual), so that ``<w, h>`` never changes.
"""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

Copies = tuple[int, ...]


@dataclass(frozen=True)
class Group(ABC):
    """A group acting on vectors of length `size`.

    Attributes:
        size: how many coordinates a vector has.
        name: as it is printed, before the size.
        is_general_linear: every invertible matrix is an element, so that what a model computes depends on products of
            primal and dual vectors alone.
        has_permutations: every permutation of coordinates is an element; see `permuting`.
        together: coordinates that go together, so that `size` is a multiple of it.
    """

    size: int
    name: ClassVar[str]
    is_general_linear: ClassVar[bool] = False
    has_permutations: ClassVar[bool] = False
    together: ClassVar[int] = 1

    @property
    def is_factor(self) -> bool:
        """An element is one number, by which the one coordinate is multiplied."""
        return False

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

    def permuting(self, order: Tensor) -> Tensor:
        """The elements that permute coordinates, ``(G h)[i] = h[order[i]]``.

        Args:
            order: permutations, an index of shape ``(*copies, size)``.

        Raises:
            TypeError: not every permutation is an element (`has_permutations` is false).
        """
        raise TypeError(f"{self} does not hold every permutation of coordinates")

    @abstractmethod
    def check(self, element: Tensor, copies: Copies) -> str | None:
        """Say what is wrong with `element` as `copies` elements of this group, or None."""

    @property
    def label(self) -> str:
        """Its name as it is printed, without the size."""
        return self.name

    @property
    def meaning(self) -> str:
        """Its elements in a few words, for a legend; the beginning of its class's docstring unless it says better."""
        words = re.split(r"[.:;](?:\s|$)", (type(self).__doc__ or "").strip())[0]
        return words[:1].lower() + words[1:]

    def __str__(self) -> str:
        return f"{self.label}({self.size})"
