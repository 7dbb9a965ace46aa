"""Signs: the better of two for each coordinate, and a hyperbolic tangent as their mean."""

import math

import torch
from torch import Tensor

from fusionlab.matching.groups.geometry import Geometry, geometry_of
from fusionlab.symmetry.groups.signs import Signs


@geometry_of(Signs)
class SignsGeometry(Geometry[Signs]):
    """The geometry of signs."""

    @property
    def is_assigned(self) -> bool:
        return True

    def closest(self, correlation: Tensor) -> tuple[Tensor, Tensor]:
        diagonal = correlation.diagonal(dim1=-2, dim2=-1)
        return torch.where(diagonal < 0, -1.0, 1.0).to(diagonal), diagonal.abs().sum(-1)

    def mean(self, correlation: Tensor) -> tuple[Tensor, Tensor]:
        diagonal = correlation.diagonal(dim1=-2, dim2=-1)
        gain = torch.logaddexp(diagonal, -diagonal) - math.log(2)
        return diagonal.tanh().diag_embed(), gain.sum(-1)
