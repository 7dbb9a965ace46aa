"""Charts: any coordinates give an element of the group, zero gives the identity, and gradients flow."""

import pytest
import torch
from torch import Tensor

from fusionlab.matching.coordinates import LARGEST_STRETCH
from fusionlab.matching.groups import geometry
from fusionlab.symmetry.groups import (
    Group,
    Invertible,
    Orthogonal,
    OrthogonalFixingOnes,
    Permutation,
    Rotary,
    Scale,
)
from tests.symmetry.models import generator

GROUPS = [
    (Orthogonal(5), False),
    (OrthogonalFixingOnes(5), False),
    (Invertible(4), False),
    (Invertible(4), True),
    (Rotary(6), False),
    (Rotary(6), True),
    (Rotary(6, interleaved=True), True),
    (Scale(3), False),
    (Scale(3, signed=True), False),
]


def coordinates(group: Group, general: bool, *copies: int, size: float = 1.0) -> Tensor:
    shape = (*copies, geometry(group).coordinates(general))
    return size * torch.randn(shape, generator=generator(0), dtype=torch.float64)


@pytest.mark.parametrize(("group", "general"), GROUPS, ids=str)
def test_zero_is_the_identity(group, general):
    zero = torch.zeros(2, geometry(group).coordinates(general), dtype=torch.float64)
    torch.testing.assert_close(geometry(group).chart(zero, general), group.identity((2,)), rtol=0, atol=1e-13)


@pytest.mark.parametrize(("group", "general"), GROUPS, ids=str)
def test_large_coordinates_give_exact_elements(group, general):
    """The group's own check, and the pairing of primal and dual vectors kept to rounding."""
    element = geometry(group).chart(coordinates(group, general, 3, size=2.0), general)
    assert group.check(element, (3,)) is None
    draw = generator(1)
    first, second = torch.randn(2, 3, group.size, 4, generator=draw, dtype=torch.float64)
    paired = group.act(element, first).mT @ group.act(element, second, dual=True)
    if isinstance(group, Rotary):
        # Its dual is that of complex numbers: the real part is kept, plane by plane.
        paired, expected = paired.diagonal(dim1=-2, dim2=-1), (first.mT @ second).diagonal(dim1=-2, dim2=-1)
    else:
        expected = first.mT @ second
    torch.testing.assert_close(paired, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("group", "general"), GROUPS, ids=str)
def test_gradient_is_that_of_finite_differences(group, general):
    """Through the chart and through both ways the group acts, away from zero."""
    vectors = torch.randn(2, group.size, 3, generator=generator(2), dtype=torch.float64)

    def acted(x: Tensor) -> tuple[Tensor, Tensor]:
        element = geometry(group).chart(x, general)
        return group.act(element, vectors), group.act(element, vectors, dual=True)

    assert torch.autograd.gradcheck(acted, coordinates(group, general, 2, size=0.5).requires_grad_())


@pytest.mark.parametrize(("group", "general"), GROUPS, ids=str)
def test_coordinates_are_as_many_as_the_group_has_dimensions(group, general):
    """All of it where stretching is allowed; an invertible matrix and a plane lose their stretches otherwise."""
    expected = group.dimension
    if isinstance(group, Rotary) and not general:
        expected = group.size // 2
    elif type(group) is Invertible and not general:
        expected = Orthogonal(group.size).dimension
    assert geometry(group).coordinates(general) == expected


@pytest.mark.parametrize("size", [1.0, 30.0, 3000.0])
@pytest.mark.parametrize("group", [Invertible(4), Rotary(6), Scale(3)], ids=str)
def test_no_coordinates_stretch_beyond_the_bound(group, size):
    """However far a descent goes, in float32 too; from three times the bound on most of it is used."""
    element = geometry(group).chart(coordinates(group, True, 20, size=size).float(), True)
    matrices = group.act(element, torch.eye(group.size).expand(20, -1, -1)).double()
    stretches = torch.linalg.svdvals(matrices).log()
    assert stretches.abs().max() <= LARGEST_STRETCH + 1e-4
    if size > 3 * LARGEST_STRETCH:
        assert stretches.abs().max() > LARGEST_STRETCH / 2


def test_bounding_hardly_changes_ordinary_stretches():
    """Half of the bound, which learned alignments reach, within a part in a thousand of the plain exponential."""
    draw = coordinates(Invertible(4), True).unflatten(-1, (4, 4))
    symmetric = draw + draw.mT
    symmetric *= 0.5 * LARGEST_STRETCH / torch.linalg.matrix_norm(symmetric, 2)
    logarithm = torch.linalg.eigvalsh(geometry(Invertible(4)).chart(symmetric.flatten(), True)).log()
    torch.testing.assert_close(logarithm, torch.linalg.eigvalsh(symmetric), rtol=1e-3, atol=0)


def test_rotations_agree_with_the_exponential_to_second_order():
    """The difference of Cayley's map and the exponential falls with the cube of the coordinates."""
    small = coordinates(Orthogonal(5), False)
    errors = []
    for size in (0.02, 0.01):
        rows, columns = torch.triu_indices(5, 5, 1)
        skew = torch.zeros(5, 5, dtype=torch.float64)
        skew[rows, columns] = size * small
        errors.append(
            float((geometry(Orthogonal(5)).chart(size * small) - torch.linalg.matrix_exp(skew - skew.mT)).norm())
        )
    assert 7.5 < errors[0] / errors[1] < 8.5


def test_permutations_have_no_chart():
    assert geometry(Permutation(4)).coordinates() == 0
    with pytest.raises(TypeError, match="no chart"):
        geometry(Permutation(4)).chart(torch.zeros(0))
