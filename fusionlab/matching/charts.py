"""Charts: unconstrained coordinates around the identity of every continuous group, for gradient descent inside it.

Zero is the identity, and near it the coordinates are orthonormal generators up to a common factor, so that one
learning rate suits all groups. Any coordinates give an element of the group, exact to rounding in their own type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from fusionlab.symmetry import Alignment, Blueprint, Space
from fusionlab.symmetry.groups import (
    Group,
    Invertible,
    Orthogonal,
    OrthogonalFixingOnes,
    Permutation,
    Rotary,
    Scale,
    embed_beside_ones,
)

# The largest logarithm of a stretch: a general matrix has a condition number of at most exp(2 * 5), about 22,000, so
# that the twin keeps its function when it is rounded to float32.
LARGEST_STRETCH = 5.0


def chart_dimension(group: Group, general: bool = False) -> int:
    """How many coordinates one element of a group has; 0 where nothing can be learned by gradient.

    Args:
        group: what may act.
        general: whether invertible spaces (and rotary planes) may also be stretched; rotations only otherwise.
    """
    match group:
        case Permutation():
            return 0
        case OrthogonalFixingOnes():
            return _planes(group.size - 1)
        case Orthogonal():
            return _planes(group.size)
        case Invertible():
            return group.size**2 if general else _planes(group.size)
        case Rotary():
            return group.size if general else group.size // 2
        case Scale():
            return group.size
        case _:
            raise TypeError(f"no chart of {group}")


def chart(group: Group, coordinates: Tensor, general: bool = False) -> Tensor:
    """The elements that coordinates stand for, differentiable.

    Rotations by Cayley's map of a skew matrix A, ``(1 - A / 2)^-1 (1 + A / 2)``: it agrees with the exponential to
    second order, is as exact, and costs a fifth to a fifteenth of it with its gradient. It reaches every rotation that
    has no half turn. General matrices and factors by the exponential, where what stretches (the symmetric part S of a
    matrix, the logarithm of a factor) is first bounded smoothly by `LARGEST_STRETCH`: a descent on few inputs may
    otherwise flatten a matrix until rounding it loses the function.

    Args:
        group: any but a permutation.
        coordinates: shape ``(..., chart_dimension)``.
        general: as in `chart_dimension`.

    Returns:
        Elements of shape ``(..., *element)``, in the type of the coordinates.
    """
    match group:
        case OrthogonalFixingOnes():
            return embed_beside_ones(_cayley(coordinates, group.size - 1))
        case Invertible() if general and not isinstance(group, Orthogonal):
            matrix = coordinates.unflatten(-1, (group.size, group.size))
            stretch = (matrix + matrix.mT) / 2
            return torch.linalg.matrix_exp(matrix - stretch + _bounded(stretch))
        case Invertible():
            return _cayley(coordinates, group.size)
        case Rotary():
            angle = coordinates[..., : group.size // 2]
            unit = torch.stack((angle.cos(), angle.sin()), -1)
            return _factors(coordinates[..., group.size // 2 :]).unsqueeze(-1) * unit if general else unit
        case Scale():
            return _factors(coordinates)
        case _:
            raise TypeError(f"no chart of {group}")


class Charts(nn.Module):
    """Coordinates of every continuous space of several models; spaces of one group are mapped in one call.

    Args:
        blueprint: of the models.
        spaces: those to learn; the ones without coordinates are left out.
        count: how many models.
        general: whether invertible spaces may also be stretched.
    """

    def __init__(self, blueprint: Blueprint, spaces: Sequence[Space], count: int, general: bool = False) -> None:
        super().__init__()
        self.blueprint, self.count, self.general = blueprint, count, general
        self.kinds: dict[Group, list[Space]] = {}
        for space in spaces:
            if chart_dimension(space.group, general) > 0:
                self.kinds.setdefault(space.group, []).append(space)
        self.coordinates = nn.ParameterList(
            nn.Parameter(torch.zeros(count, sum(map(_copies, found)), chart_dimension(group, general)))
            for group, found in self.kinds.items()
        )

    def elements(self, dtype: torch.dtype | None = None) -> list[dict[str, Tensor]]:
        """The elements of each model by space, differentiable.

        Args:
            dtype: to compute in; that of the coordinates if None.
        """
        models: list[dict[str, Tensor]] = [{} for _ in range(self.count)]
        for (group, spaces), coordinates in zip(self.kinds.items(), self.coordinates, strict=True):
            found = chart(group, coordinates.to(dtype or coordinates.dtype), self.general)
            for elements, mine in zip(models, found, strict=True):
                elements.update(_split(spaces, mine))
        return models

    @torch.no_grad()
    def permute(self, model: int, orders: Mapping[str, Tensor], optimizer: torch.optim.Optimizer | None) -> None:
        """Move the coordinates of one model's copies as permutations of the spaces that index them say.

        Args:
            model: its index.
            orders: by space, permutations that act before the charts from now on.
            optimizer: whose moments of the coordinates move along.
        """
        for spaces, coordinates in zip(self.kinds.values(), self.coordinates, strict=True):
            moments = optimizer.state.get(coordinates, {}) if optimizer is not None else {}
            for tensor in (coordinates, *(x for x in moments.values() if x.shape == coordinates.shape)):
                parts = Alignment(self.blueprint, dict(_split(spaces, tensor[model])))
                moved = Alignment(self.blueprint, orders).compose(parts).elements
                flat = [moved[s.name].reshape(_copies(s), -1) for s in spaces]
                tensor[model] = torch.cat(flat)


def _split(spaces: Sequence[Space], stacked: Tensor) -> dict[str, Tensor]:
    """Cut what is stacked over the copies of several spaces into one tensor ``(*copies, ...)`` for each."""
    parts = stacked.split([_copies(space) for space in spaces])
    return {s.name: part.reshape(*s.copies, *part.shape[1:]) for s, part in zip(spaces, parts, strict=True)}


def _copies(space: Space) -> int:
    return torch.Size(space.copies).numel()


def _planes(size: int) -> int:
    return size * (size - 1) // 2


def _bounded(symmetric: Tensor) -> Tensor:
    """Symmetric matrices with all eigenvalues within `LARGEST_STRETCH`; small ones hardly change.

    They are divided by ``(1 + |S / L|^8)^(1/8)`` with the Schatten 8-norm, which is at least the largest eigenvalue and
    smooth everywhere, unlike an eigendecomposition.
    """
    fourth = torch.linalg.matrix_power(symmetric / LARGEST_STRETCH, 4)
    return symmetric / (1 + fourth.square().sum((-2, -1), keepdim=True)) ** (1 / 8)


def _factors(logarithms: Tensor) -> Tensor:
    """Positive factors, bounded as 1 x 1 matrices."""
    return _bounded(logarithms[..., None, None])[..., 0, 0].exp()


def _cayley(coordinates: Tensor, size: int) -> Tensor:
    """Rotations of shape ``(..., size, size)`` from the entries above the diagonal of their skew matrices."""
    rows, columns = torch.triu_indices(size, size, 1, device=coordinates.device)
    upper = coordinates.new_zeros(*coordinates.shape[:-1], size, size)
    upper[..., rows, columns] = coordinates / 2
    skew = upper - upper.mT
    identity = torch.eye(size, dtype=coordinates.dtype, device=coordinates.device)
    # In half precision there is no solver; such coordinates are worked on in float32.
    work = torch.promote_types(coordinates.dtype, torch.float32)
    return torch.linalg.solve((identity - skew).to(work), (identity + skew).to(work)).to(coordinates.dtype)
