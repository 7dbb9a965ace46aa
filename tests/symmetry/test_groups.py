"""The groups obey the laws of groups, and act as groups act."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fusionlab.symmetry.groups import Group, Invertible, Orthogonal, Permutation, random_orthogonal

from .models import generator, laws

groups = st.builds(
    lambda kind, size: kind(size), st.sampled_from([Permutation, Invertible, Orthogonal]), st.integers(1, 7)
)
copies = st.sampled_from([(), (2,), (2, 3)])
seeds = st.integers(0, 2**31)


def matrix(group: Group, element: Tensor) -> Tensor:
    """The dense matrix of an element, written down independently of the group's own arithmetic."""
    if isinstance(group, Permutation):
        return torch.nn.functional.one_hot(element, group.size).double()
    return element


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
    ],
)
def test_check_refuses_what_is_no_element(group, element, sentence):
    assert sentence in group.check(element, ())


def test_dimension_and_number_of_choices():
    """Hand-computed: GL(4) has 16 degrees of freedom, O(4) six and two components, S(5) 120 elements."""
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
    for group in (Permutation(3), Invertible(3), Orthogonal(3)):
        assert group.act(group.random((), generator(0)), torch.ones(3, 2)).dtype == torch.float32
