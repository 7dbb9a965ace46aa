"""The group that commutes with rotary position embeddings."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fusionlab.symmetry.groups.group import Copies, Group


@dataclass(frozen=True)
class Rotary(Group):
    """The group that commutes with rotary position embeddings: for each plane a rotation and a positive scale.

    A plane is a pair of coordinates that RoPE (Su et al., "RoFormer", 2021) turns by one frequency: ``(f, f + n/2)``
    in the half-split layout of transformers' Llama, ``(2f, 2f + 1)`` in the interleaved one of GPT-J. Elements are
    complex numbers ``c`` as real tensors of shape ``(*copies, n/2, 2)``; a plane's vector z becomes ``c z`` (primal)
    or ``z / conj(c)`` (dual), so that ``Re(conj(q) exp(i phase) k)`` never changes.
    """

    interleaved: bool = False
    name: ClassVar[str] = "C*"
    together: ClassVar[int] = 2

    @property
    def meaning(self) -> str:
        return "a rotation and a positive factor for each plane that rotary positions turn"

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
