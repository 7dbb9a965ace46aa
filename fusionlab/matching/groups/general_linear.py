"""Invertible matrices: matched by a rotation, alone or with a positive scale, after balancing took care of the rest."""

import torch
from torch import Tensor

from fusionlab.matching.balancing import balancing_matrices
from fusionlab.matching.coordinates import bounded, cayley, even, even_rotation, skew_dimension
from fusionlab.matching.groups.geometry import Geometry, geometry_of
from fusionlab.matching.mean_field import mean_rotation
from fusionlab.matching.solvers import Correlation, MatrixRotations, Rescale, procrustes, rotate_and_scale
from fusionlab.symmetry.groups import Invertible


@geometry_of(Invertible)
class InvertibleGeometry(Geometry[Invertible]):
    """The geometry of the general linear group."""

    has_balance = True

    def closest(self, correlation: Tensor) -> tuple[Tensor, Tensor]:
        return procrustes(correlation)

    def solve(self, correlation: Correlation, rescale: Rescale) -> tuple[Tensor, Tensor]:
        primal, dual = correlation.primal.double(), correlation.dual.double()
        lengths = correlation.primal_norm.double().sum(-1), correlation.dual_norm.double().sum(-1)
        rotation, scale, value = rotate_and_scale(MatrixRotations(), primal, dual, *lengths, rescale)
        return scale[..., None, None] * rotation, value

    def mean(self, correlation: Tensor) -> tuple[Tensor, Tensor]:
        return mean_rotation(correlation)

    def prior(self) -> Tensor:
        return torch.zeros(self.group.size, self.group.size, dtype=torch.float64)

    def coordinates(self, general: bool = False) -> int:
        return self.group.size**2 if general else skew_dimension(self.group.size)

    def chart(self, coordinates: Tensor, general: bool = False) -> Tensor:
        """Rotations by Cayley's map; general matrices by the exponential of one whose symmetric part is bounded."""
        if not general:
            return cayley(coordinates, self.group.size)
        matrix = coordinates.unflatten(-1, (self.group.size, self.group.size))
        stretch = (matrix + matrix.mT) / 2
        return torch.linalg.matrix_exp(matrix - stretch + bounded(stretch))

    def steepest(self, gradient: Tensor, general: bool = False) -> Tensor:
        if not general:
            return even_rotation(gradient, self.group.size)
        return even(gradient.unflatten(-1, (self.group.size, self.group.size))).flatten(-2)

    def balance(self, primal: Tensor, dual: Tensor) -> Tensor:
        return balancing_matrices(primal, dual)
