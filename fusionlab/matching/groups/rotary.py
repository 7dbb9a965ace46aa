"""Planes of rotary positions: a rotation of each, alone or with a positive scale; complex numbers for matrices."""

import torch
from torch import Tensor

from fusionlab.matching.balancing import balancing_factors
from fusionlab.matching.coordinates import factors
from fusionlab.matching.groups.geometry import Geometry, geometry_of
from fusionlab.matching.mean_field import shrinkage
from fusionlab.matching.solvers import Correlation, PlaneRotations, Rescale, rotate_and_scale
from fusionlab.symmetry.groups import Rotary


@geometry_of(Rotary)
class RotaryGeometry(Geometry[Rotary]):
    """The geometry of the group that commutes with rotary positions."""

    has_balance = True

    def closest(self, correlation: Tensor) -> tuple[Tensor, Tensor]:
        planes = plane_correlations(self.group, correlation)
        return torch.view_as_real(PlaneRotations().best(planes)), planes.abs().sum(-1)

    def solve(self, correlation: Correlation, rescale: Rescale) -> tuple[Tensor, Tensor]:
        rotation, scale, value = rotate_and_scale(
            PlaneRotations(),
            plane_correlations(self.group, correlation.primal),
            plane_correlations(self.group, correlation.dual),
            self._by_plane(correlation.primal_norm),
            self._by_plane(correlation.dual_norm),
            rescale,
        )
        return torch.view_as_real(scale * rotation), value.sum(-1)

    def mean(self, correlation: Tensor) -> tuple[Tensor, Tensor]:
        planes = plane_correlations(self.group, correlation)
        shrink, gain = shrinkage(planes.abs(), 2)
        planes = shrink * torch.where(planes == 0, planes, planes / planes.abs().clamp_min(1e-300))
        eye = torch.eye(self.group.size, dtype=torch.float64, device=correlation.device)
        return self.group.act(torch.view_as_real(planes), eye.expand(*planes.shape[:-1], *eye.shape)), gain.sum(-1)

    def coordinates(self, general: bool = False) -> int:
        return self.group.size if general else self.group.size // 2

    def chart(self, coordinates: Tensor, general: bool = False) -> Tensor:
        """An angle for each plane; then, where elements may stretch, the bounded logarithm of a factor for each."""
        angle = coordinates[..., : self.group.size // 2]
        unit = torch.stack((angle.cos(), angle.sin()), -1)
        return factors(coordinates[..., self.group.size // 2 :]).unsqueeze(-1) * unit if general else unit

    def balance(self, primal: Tensor, dual: Tensor) -> Tensor:
        lengths = (self._by_plane(gram.diagonal(dim1=-2, dim2=-1)) for gram in (primal, dual))
        factor = balancing_factors(*lengths)
        return self.group.identity(tuple(factor.shape[:-1])).to(factor) * factor.unsqueeze(-1)

    def _by_plane(self, norms: Tensor) -> Tensor:
        """Squared norms of planes, shape ``(..., n / 2)``, from those of coordinates."""
        first, second = self.group.planes(norms.double().unsqueeze(-1))
        return (first + second).squeeze(-1)


def plane_correlations(group: Rotary, correlation: Tensor) -> Tensor:
    """The correlation of every plane: the complex s with ``<G, C> = Re(conj(c) s)``, ``G`` the rotation by c.

    Args:
        group: which coordinates make a plane.
        correlation: shape ``(..., n, n)``.

    Returns:
        Shape ``(..., n / 2)``, complex.
    """
    order = torch.arange(group.size).unsqueeze(-1)
    x, y = (index.squeeze(-1).to(correlation.device) for index in group.planes(order))
    matrix = correlation.double()
    real = matrix[..., x, x] + matrix[..., y, y]
    return torch.complex(real, matrix[..., y, x] - matrix[..., x, y])
