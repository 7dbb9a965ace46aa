"""Charts: any coordinates give an element of the group, zero gives the identity, and gradients flow."""

import pytest
import torch
from torch import Tensor

from fusionlab.matching.charts import LARGEST_STRETCH, Charts, chart, chart_dimension
from fusionlab.symmetry import Alignment, blueprint
from fusionlab.symmetry.groups import (
    Group,
    Invertible,
    Orthogonal,
    OrthogonalFixingOnes,
    Permutation,
    Rotary,
    Scale,
)
from tests.symmetry.models import generator, nested_blueprint, nested_state, random_model

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
    shape = (*copies, chart_dimension(group, general))
    return size * torch.randn(shape, generator=generator(0), dtype=torch.float64)


@pytest.mark.parametrize(("group", "general"), GROUPS, ids=str)
def test_zero_is_the_identity(group, general):
    zero = torch.zeros(2, chart_dimension(group, general), dtype=torch.float64)
    torch.testing.assert_close(chart(group, zero, general), group.identity((2,)), rtol=0, atol=1e-13)


@pytest.mark.parametrize(("group", "general"), GROUPS, ids=str)
def test_large_coordinates_give_exact_elements(group, general):
    """The group's own check, and the pairing of primal and dual vectors kept to rounding."""
    element = chart(group, coordinates(group, general, 3, size=2.0), general)
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
        element = chart(group, x, general)
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
    assert chart_dimension(group, general) == expected


@pytest.mark.parametrize("size", [1.0, 30.0, 3000.0])
@pytest.mark.parametrize("group", [Invertible(4), Rotary(6), Scale(3)], ids=str)
def test_no_coordinates_stretch_beyond_the_bound(group, size):
    """However far a descent goes, in float32 too; from three times the bound on most of it is used."""
    element = chart(group, coordinates(group, True, 20, size=size).float(), True)
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
    logarithm = torch.linalg.eigvalsh(chart(Invertible(4), symmetric.flatten(), True)).log()
    torch.testing.assert_close(logarithm, torch.linalg.eigvalsh(symmetric), rtol=1e-3, atol=0)


def test_rotations_agree_with_the_exponential_to_second_order():
    """The difference of Cayley's map and the exponential falls with the cube of the coordinates."""
    small = coordinates(Orthogonal(5), False)
    errors = []
    for size in (0.02, 0.01):
        rows, columns = torch.triu_indices(5, 5, 1)
        skew = torch.zeros(5, 5, dtype=torch.float64)
        skew[rows, columns] = size * small
        errors.append(float((chart(Orthogonal(5), size * small) - torch.linalg.matrix_exp(skew - skew.mT)).norm()))
    assert 7.5 < errors[0] / errors[1] < 8.5


def test_permutations_have_no_chart():
    assert chart_dimension(Permutation(4)) == 0
    with pytest.raises(TypeError, match="no chart"):
        chart(Permutation(4), torch.zeros(0))


def test_charts_of_a_model_give_elements_of_every_continuous_space():
    """Float64 elements that the blueprint's groups accept, one set for each model, different ones."""
    description = blueprint(random_model("vit-classifier")).after_folding
    assert description is not None
    charts = Charts(description, tuple(description.spaces.values()), 2)
    with torch.no_grad():
        for parameter in charts.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator(3)))
    first, second = charts.elements(torch.float64)
    continuous = {n for n, s in description.spaces.items() if not isinstance(s.group, Permutation)}
    assert first.keys() == second.keys() == continuous
    for name in continuous:
        space = description.spaces[name]
        assert space.group.check(first[name], space.copies) is None
        assert (first[name] - second[name]).abs().max() > 0.01


def test_permuting_coordinates_is_permuting_before_the_charts():
    """Charts after a permutation, moved along with it, do what the permutation does after them; so do the moments."""
    description, state = nested_blueprint(), nested_state()
    charts = Charts(description, tuple(description.spaces.values()), 2).double()
    with torch.no_grad():
        for parameter in charts.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator(4), dtype=torch.float64))
    optimizer = torch.optim.Adam(charts.parameters())
    for parameter in charts.parameters():
        parameter.grad = parameter.detach().clone()
    optimizer.step()
    draw = generator(5)
    orders = {n: s.group.random(s.copies, draw) for n, s in description.spaces.items() if s.group.name == "S"}
    permutation = Alignment(description, orders)
    before = [Alignment(description, elements) for elements in charts.elements()]
    untouched = charts.coordinates[0][0].clone()
    charts.permute(1, orders, optimizer)
    after = [Alignment(description, elements) for elements in charts.elements()]
    expected = permutation.apply(before[1].apply(state))
    found = after[1].apply(permutation.apply(state))
    for name in state:
        torch.testing.assert_close(found[name], expected[name])
    assert torch.equal(charts.coordinates[0][0], untouched)
    for parameter in charts.parameters():
        # After one step the first moment is a tenth of the gradient, which was the coordinate itself.
        moment = optimizer.state[parameter]["exp_avg"]
        assert torch.allclose(moment * 10, parameter, atol=2e-3)
