"""Orthogonal matrices: all of them, and those that keep the all-ones vector."""

import torch
from torch import Tensor

from fusionlab.matching.coordinates import cayley, even_rotation, skew_dimension
from fusionlab.matching.groups.geometry import Geometry, geometry_of
from fusionlab.matching.mean_field import mean_rotation
from fusionlab.matching.solvers import procrustes
from fusionlab.symmetry.groups import Orthogonal, OrthogonalFixingOnes, complement_of_ones, embed_beside_ones


@geometry_of(Orthogonal)
class OrthogonalGeometry(Geometry[Orthogonal]):
    """The geometry of the orthogonal group."""

    def closest(self, correlation: Tensor) -> tuple[Tensor, Tensor]:
        return procrustes(correlation)

    def mean(self, correlation: Tensor) -> tuple[Tensor, Tensor]:
        return mean_rotation(correlation)

    def prior(self) -> Tensor:
        return torch.zeros(self.group.size, self.group.size, dtype=torch.float64)

    def coordinates(self, general: bool = False) -> int:
        return skew_dimension(self.group.size)

    def chart(self, coordinates: Tensor, general: bool = False) -> Tensor:
        return cayley(coordinates, self.group.size)

    def steepest(self, gradient: Tensor, general: bool = False) -> Tensor:
        return even_rotation(gradient, self.group.size)


@geometry_of(OrthogonalFixingOnes)
class BesideOnesGeometry(Geometry[OrthogonalFixingOnes]):
    """The geometry of the orthogonal group of the complement of the all-ones vector, which keeps its place."""

    def closest(self, correlation: Tensor) -> tuple[Tensor, Tensor]:
        inside, value = procrustes(self._inside(correlation))
        return embed_beside_ones(inside), value + self._along_ones(correlation)

    def mean(self, correlation: Tensor) -> tuple[Tensor, Tensor]:
        inside, gain = mean_rotation(self._inside(correlation))
        return embed_beside_ones(inside), gain + self._along_ones(correlation)

    def prior(self) -> Tensor:
        return torch.full((self.group.size, self.group.size), 1 / self.group.size, dtype=torch.float64)

    def coordinates(self, general: bool = False) -> int:
        return skew_dimension(self.group.size - 1)

    def chart(self, coordinates: Tensor, general: bool = False) -> Tensor:
        return embed_beside_ones(cayley(coordinates, self.group.size - 1))

    def steepest(self, gradient: Tensor, general: bool = False) -> Tensor:
        return even_rotation(gradient, self.group.size - 1)

    def _inside(self, correlation: Tensor) -> Tensor:
        """The correlation within the complement, shape ``(..., n - 1, n - 1)``."""
        total = correlation.double()
        basis = complement_of_ones(self.group.size).to(total)
        return basis.mT @ total @ basis

    def _along_ones(self, correlation: Tensor) -> Tensor:
        """The value of keeping the all-ones vector, shape ``(...)``."""
        return correlation.double().sum((-2, -1)) / self.group.size
