"""The groups that may act on a space, one file for each: how an element acts, inverts and composes.

What optimisation needs of a group lies under the same name in `fusionlab.matching.groups`.
"""

from fusionlab.symmetry.groups.general_linear import Invertible
from fusionlab.symmetry.groups.group import Copies, Group
from fusionlab.symmetry.groups.orthogonal import Orthogonal, OrthogonalFixingOnes
from fusionlab.symmetry.groups.permutation import Permutation
from fusionlab.symmetry.groups.rotary import Rotary
from fusionlab.symmetry.groups.rotations import complement_of_ones, embed_beside_ones, random_orthogonal
from fusionlab.symmetry.groups.scaling import Scale
from fusionlab.symmetry.groups.signs import Signs

__all__ = [
    "Copies",
    "Group",
    "Invertible",
    "Orthogonal",
    "OrthogonalFixingOnes",
    "Permutation",
    "Rotary",
    "Scale",
    "Signs",
    "complement_of_ones",
    "embed_beside_ones",
    "random_orthogonal",
]
