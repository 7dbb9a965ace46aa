"""Scales: a factor for every coordinate, its sign at most where lengths are kept."""

import math

import torch
from torch import Tensor

from fusionlab.matching.balancing import balancing_factors
from fusionlab.matching.coordinates import factors
from fusionlab.matching.groups.geometry import Geometry, geometry_of
from fusionlab.matching.solvers import Correlation, Rescale, best_scale
from fusionlab.symmetry.groups import Scale


@geometry_of(Scale)
class ScaleGeometry(Geometry[Scale]):
    """The geometry of factors, positive or signed."""

    has_balance = True

    @property
    def is_assigned(self) -> bool:
        return self.group.signed

    def closest(self, correlation: Tensor) -> tuple[Tensor, Tensor]:
        """Signs and the values that they reach, in the type of the correlation."""
        diagonal = correlation.diagonal(dim1=-2, dim2=-1)
        ones = torch.ones_like(diagonal)
        if not self.group.signed:
            return ones, diagonal.sum(-1)
        return torch.where(diagonal < 0, -ones, ones), diagonal.abs().sum(-1)

    def solve(self, correlation: Correlation, rescale: Rescale) -> tuple[Tensor, Tensor]:
        primal, dual = (c.diagonal(dim1=-2, dim2=-1).double() for c in (correlation.primal, correlation.dual))
        p_norm, d_norm = correlation.primal_norm.double(), correlation.dual_norm.double()
        if rescale == "off":
            factor, _ = self.closest(correlation.primal.double() + correlation.dual.double())
        else:
            factor = best_scale(primal, dual, p_norm, d_norm, positive=not self.group.signed)
            # One but for rounding is one: what is the same already is not touched.
            factor = torch.where((factor.abs() - 1).abs() < 1e-12, factor.sign(), factor)
        value = 2 * (factor * primal + dual / factor) - factor**2 * p_norm - d_norm / factor**2
        return factor, value.sum(-1)

    def mean(self, correlation: Tensor) -> tuple[Tensor, Tensor]:
        diagonal = correlation.diagonal(dim1=-2, dim2=-1)
        if not self.group.signed:
            return torch.eye(self.group.size).to(correlation).expand_as(correlation), diagonal.sum(-1)
        return diagonal.tanh().diag_embed(), _log_cosh(diagonal).sum(-1)

    def coordinates(self, general: bool = False) -> int:
        return self.group.size

    def chart(self, coordinates: Tensor, general: bool = False) -> Tensor:
        """Bounded logarithms of positive factors, which may always stretch: there is nothing else to learn."""
        return factors(coordinates)

    def balance(self, primal: Tensor, dual: Tensor) -> Tensor:
        return balancing_factors(*(gram.diagonal(dim1=-2, dim2=-1) for gram in (primal, dual)))


def _log_cosh(x: Tensor) -> Tensor:
    return x.abs() + torch.log1p(torch.exp(-2 * x.abs())) - math.log(2)
