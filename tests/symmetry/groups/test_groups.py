"""The groups obey the laws of groups, and act as groups act."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fusionlab.symmetry.groups import (
    Group,
    Invertible,
    Orthogonal,
    OrthogonalFixingOnes,
    Permutation,
    Rotary,
    Scale,
    Signs,
    complement_of_ones,
    embed_beside_ones,
    random_orthogonal,
)
from tests.symmetry.models import generator, laws

groups = st.one_of(
    st.builds(
        lambda kind, size: kind(size),
        st.sampled_from([Permutation, Invertible, Orthogonal, OrthogonalFixingOnes]),
        st.integers(1, 7),
    ),
    st.builds(Scale, st.integers(1, 7), st.booleans()),
    st.builds(Signs, st.integers(1, 7)),
    st.builds(Rotary, st.sampled_from([2, 4, 6]), st.booleans()),
)
copies = st.sampled_from([(), (2,), (2, 3)])
seeds = st.integers(0, 2**31)


def matrix(group: Group, element: Tensor) -> Tensor:
    """The dense matrix of an element, written down independently of the group's own arithmetic."""
    if isinstance(group, Permutation):
        return torch.nn.functional.one_hot(element, group.size).double()
    if isinstance(group, Scale | Signs):
        return torch.diag_embed(element)
    if isinstance(group, Rotary):
        dense = torch.zeros(*element.shape[:-2], group.size, group.size, dtype=torch.float64)
        for plane in range(group.size // 2):
            first = 2 * plane if group.interleaved else plane
            second = first + 1 if group.interleaved else plane + group.size // 2
            real, imaginary = element[..., plane, 0], element[..., plane, 1]
            dense[..., first, first] = dense[..., second, second] = real
            dense[..., second, first], dense[..., first, second] = imaginary, -imaginary
        return dense
    return element


def test_planes_are_halves_apart_unless_said_otherwise() -> None:
    assert Rotary(4) == Rotary(4, interleaved=False) != Rotary(4, interleaved=True)


@laws
@given(groups, copies, seeds)
def test_composition_is_associative_and_is_the_product_of_the_matrices(group, copies, seed):
    draw = generator(seed)
    f, g, h = (group.random(copies, draw) for _ in range(3))
    left, right = group.compose(group.compose(f, g), h), group.compose(f, group.compose(g, h))
    torch.testing.assert_close(left, right)
    torch.testing.assert_close(matrix(group, left), matrix(group, f) @ matrix(group, g) @ matrix(group, h))


@laws
@given(groups, copies, seeds)
def test_inverse_and_identity_are_neutral(group, copies, seed):
    g = group.random(copies, generator(seed))
    identity = group.identity(copies)
    for undone in (group.compose(g, group.inverse(g)), group.compose(group.inverse(g), g)):
        torch.testing.assert_close(undone, identity)
    torch.testing.assert_close(group.compose(g, identity), g)
    torch.testing.assert_close(group.compose(identity, g), g)


@laws
@given(groups, copies, seeds, st.booleans())
def test_acting_with_a_product_is_acting_twice(group, copies, seed, dual):
    draw = generator(seed)
    g, h = group.random(copies, draw), group.random(copies, draw)
    vectors = torch.randn(*copies, group.size, 4, generator=draw, dtype=torch.float64)
    once = group.act(group.compose(g, h), vectors, dual)
    torch.testing.assert_close(once, group.act(g, group.act(h, vectors, dual), dual))


@laws
@given(groups, copies, seeds)
def test_primal_action_is_the_matrix_and_dual_action_its_inverse_transpose(group, copies, seed):
    draw = generator(seed)
    g = group.random(copies, draw)
    vectors = torch.randn(*copies, group.size, 4, generator=draw, dtype=torch.float64)
    dense = matrix(group, g)
    torch.testing.assert_close(group.act(g, vectors), dense @ vectors)
    torch.testing.assert_close(group.act(g, vectors, dual=True), torch.linalg.inv(dense).mT @ vectors)


@laws
@given(groups, copies, seeds)
def test_dual_and_primal_vectors_keep_their_product(group, copies, seed):
    draw = generator(seed)
    g = group.random(copies, draw)
    w, h = torch.randn(2, *copies, group.size, 4, generator=draw, dtype=torch.float64)
    torch.testing.assert_close((group.act(g, w, dual=True) * group.act(g, h)).sum(-2), (w * h).sum(-2))


@laws
@given(groups, copies, seeds)
def test_check_accepts_random_elements_and_identity_and_refuses_other_copies(group, copies, seed):
    assert group.check(group.random(copies, generator(seed)), copies) is None
    assert group.check(group.identity(copies), copies) is None
    assert group.check(group.identity(copies), (*copies, 2)) is not None


@pytest.mark.parametrize(
    ("group", "element", "sentence"),
    [
        (Permutation(3), torch.tensor([0, 1]), "shape"),
        (Permutation(3), torch.tensor([0.0, 1.0, 2.0]), "int64"),
        (Permutation(3), torch.tensor([0, 1, 1]), "every index from 0 to 2 once"),
        (Permutation(3), torch.tensor([1, 2, 3]), "every index from 0 to 2 once"),
        (Permutation(3), torch.tensor([-1, 0, 1]), "every index from 0 to 2 once"),
        (Invertible(2), torch.eye(3), "shape"),
        (Invertible(2), torch.eye(2, dtype=torch.int64), "real"),
        (Invertible(2), torch.ones(2, 2), "invertible"),
        (Invertible(2), torch.zeros(2, 2), "invertible"),
        (Invertible(2), torch.tensor([[1.0, torch.nan], [0.0, 1.0]]), "finite"),
        (Invertible(2), torch.tensor([[torch.inf, 0.0], [0.0, 1.0]]), "finite"),
        (Orthogonal(2), 2 * torch.eye(2), "orthogonal"),
        (Orthogonal(2), torch.tensor([[1.0, 0.1], [0.0, 1.0]]), "orthogonal"),
        (Orthogonal(2), torch.ones(2, 2), "invertible"),
        (OrthogonalFixingOnes(2), torch.ones(2, 2), "invertible"),
        (OrthogonalFixingOnes(2), 2 * torch.eye(2), "orthogonal"),
        (OrthogonalFixingOnes(2), -torch.eye(2), "keep the all-ones vector"),
        (OrthogonalFixingOnes(3), torch.diag(torch.tensor([1.0, 1.0, -1.0])), "keep the all-ones vector"),
        (Scale(2), torch.ones(3), "shape"),
        (Scale(2), torch.ones(2, dtype=torch.int64), "real"),
        (Scale(2), torch.tensor([1.0, 0.0]), "positive"),
        (Scale(2), torch.tensor([1.0, -1.0]), "positive"),
        (Scale(2), torch.tensor([1.0, torch.inf]), "finite"),
        (Scale(2, signed=True), torch.tensor([1.0, 0.0]), "non-zero"),
        (Scale(2, signed=True), torch.tensor([1.0, torch.nan]), "finite"),
        (Rotary(4), torch.ones(4, 2), "shape"),
        (Rotary(4), torch.ones(2, 2, dtype=torch.int64), "real"),
        (Rotary(4), torch.tensor([[1.0, 0.0], [0.0, 0.0]]), "non-zero"),
        (Rotary(4), torch.tensor([[1.0, torch.nan], [1.0, 0.0]]), "finite"),
    ],
)
def test_check_refuses_what_is_no_element(group, element, sentence):
    assert sentence in group.check(element, ())


def test_dimension_and_number_of_choices():
    """Hand-computed: GL(4) has 16 degrees of freedom, O(4) six and two components, S(5) 120 elements; O1(4) is O(3)."""
    ones, scale, signs, rotary = OrthogonalFixingOnes(4), Scale(3), Scale(3, signed=True), Rotary(6)
    assert [g.dimension for g in (ones, scale, signs, rotary)] == [3, 3, 3, 6]
    assert [g.log10_order for g in (scale, rotary, OrthogonalFixingOnes(1))] == [0.0, 0.0, 0.0]
    assert ones.log10_order == pytest.approx(math.log10(2))
    assert signs.log10_order == pytest.approx(math.log10(8))
    assert [str(g) for g in (ones, scale, signs, rotary)] == ["O1(4)", "R+(3)", "R*(3)", "C*(6)"]
    assert [g.dimension for g in (Permutation(5), Invertible(4), Orthogonal(4))] == [0, 16, 6]
    assert Permutation(5).log10_order == pytest.approx(math.log10(120))
    assert Orthogonal(4).log10_order == pytest.approx(math.log10(2))
    assert Invertible(4).log10_order == 0.0
    assert [str(g) for g in (Permutation(5), Invertible(4), Orthogonal(4))] == ["S(5)", "GL(4)", "O(4)"]


def test_random_orthogonal_matrices_cover_both_components_evenly():
    """Haar measure: half of them are reflections, and every entry has mean 0 and variance 1/n."""
    drawn = random_orthogonal(3, (4000,), generator(0))
    torch.testing.assert_close(drawn @ drawn.mT, torch.eye(3, dtype=torch.float64).expand(4000, 3, 3))
    assert float((torch.linalg.det(drawn) > 0).double().mean()) == pytest.approx(0.5, abs=0.04)
    assert float(drawn.mean(0).abs().max()) < 0.04
    torch.testing.assert_close(
        drawn.square().mean(0), torch.full((3, 3), 1 / 3, dtype=torch.float64), atol=0.03, rtol=0
    )


def test_float32_vectors_stay_float32():
    for group in (Permutation(4), Invertible(4), Orthogonal(4), Scale(4), Rotary(4)):
        assert group.act(group.random((), generator(0)), torch.ones(4, 2)).dtype == torch.float32


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_complement_of_the_ones_is_a_basis_of_it(size):
    """Orthonormal columns of mean zero; a rotation of them keeps the all-ones vector."""
    basis = complement_of_ones(size)
    torch.testing.assert_close(basis.mT @ basis, torch.eye(size - 1, dtype=torch.float64))
    torch.testing.assert_close(basis.sum(0), torch.zeros(size - 1, dtype=torch.float64), rtol=0, atol=1e-14)
    rotation = random_orthogonal(size - 1, (3,), generator(0))
    embedded = embed_beside_ones(rotation)
    torch.testing.assert_close(embedded @ torch.ones(size, 1, dtype=torch.float64), torch.ones(3, size, 1).double())
    torch.testing.assert_close(basis.mT @ embedded @ basis, rotation)


def test_random_factors_are_well_conditioned_and_signs_are_even():
    """Between exp(-1/2) and exp(1/2); half of the signed ones are negative, every angle is as likely."""
    scale = Scale(1000).random((2,), generator(0))
    assert scale.shape == (2, 1000)
    assert 0.6 < float(scale.min()) < 0.62
    assert 1.62 < float(scale.max()) < 1.65
    signed = Scale(4000, signed=True).random((), generator(0))
    assert float((signed < 0).double().mean()) == pytest.approx(0.5, abs=0.04)
    planes = Rotary(4000).random((), generator(0))
    assert 0.6 < float(planes.norm(dim=-1).min()) < 0.62
    assert 1.62 < float(planes.norm(dim=-1).max()) < 1.65
    quadrants = [(planes[:, 0].sign() == x) & (planes[:, 1].sign() == y) for x in (-1, 1) for y in (-1, 1)]
    assert all(float(q.double().mean()) == pytest.approx(0.25, abs=0.04) for q in quadrants)
    singular = torch.linalg.svdvals(Invertible(3).random((500,), generator(0)))
    assert 0.6 < float(singular.min()) < 0.63
    assert 1.6 < float(singular.max()) < 1.65
