"""The closed form of every group reaches the best of its elements, and says what that is worth."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fusionlab.matching.groups import solve
from fusionlab.matching.solvers import Correlation, Rescale
from fusionlab.symmetry.groups import (
    Group,
    Invertible,
    Orthogonal,
    OrthogonalFixingOnes,
    Rotary,
    Scale,
    embed_beside_ones,
)
from tests.symmetry.models import generator, laws

HEADS, SIZE = 3, 4
FREE = {"off": False, "sequential": True, "joint": True}
groups = st.sampled_from(
    [Orthogonal(4), OrthogonalFixingOnes(4), Invertible(4), Rotary(4), Rotary(4, True), Scale(4), Scale(4, True)]
)
rescales = st.sampled_from(["off", "sequential", "joint"])
seeds = st.integers(0, 2**31)


def stretches(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The source's and the anchor's vectors, primal and dual ones, of different lengths."""
    draw = generator(seed)
    return tuple(
        size * torch.randn(HEADS, SIZE, features, generator=draw, dtype=torch.float64)
        for size, features in ((1, 5), (2, 5), (3, 6), (0.5, 6))
    )


def correlation_of(a: Tensor, b: Tensor, d: Tensor, e: Tensor) -> Correlation:
    return Correlation(b @ a.mT, e @ d.mT, a.square().sum(-1), d.square().sum(-1))


def left(group: Group, element: Tensor, sides: tuple[Tensor, ...]) -> Tensor:
    """The squared distance that an element leaves, for each head."""
    a, b, d, e = sides
    primal, dual = group.act(element, a) - b, group.act(element, d, dual=True) - e
    return primal.square().sum((-2, -1)) + dual.square().sum((-2, -1))


def near(group: Group, size: float, free: bool, draw: torch.Generator) -> Tensor:
    """An element of every head near the identity; one that keeps lengths unless scales are `free`."""
    turned = torch.randn(HEADS, SIZE, SIZE, generator=draw, dtype=torch.float64) * size
    factor = (size * torch.randn(HEADS, 1, 1, generator=draw, dtype=torch.float64)).exp() if free else 1.0
    if isinstance(group, OrthogonalFixingOnes):
        small = turned[:, 1:, 1:]
        return embed_beside_ones(torch.linalg.matrix_exp(small - small.mT))
    if isinstance(group, Invertible):
        scale = 1.0 if isinstance(group, Orthogonal) else factor
        return scale * torch.linalg.matrix_exp(turned - turned.mT)
    if isinstance(group, Rotary):
        length = turned[:, 0, :2].exp() if free else torch.ones(HEADS, 2, dtype=torch.float64)
        return torch.view_as_real(torch.polar(length, turned[:, 1, :2]))
    return turned[:, 0].exp() if free else torch.ones(HEADS, SIZE, dtype=torch.float64)


@laws
@given(groups, rescales, seeds)
def test_value_is_what_the_squared_distance_falls_by(group, rescale, seed):
    """|G A - B|^2 + |G^-T D - E|^2 = |B|^2 + |E|^2 - value."""
    sides = stretches(seed)
    element, value = solve(group, correlation_of(*sides), rescale)
    assert group.check(element, (HEADS,)) is None
    anchor = sides[1].square().sum((-2, -1)) + sides[3].square().sum((-2, -1))
    torch.testing.assert_close(left(group, element, sides), anchor - value, rtol=1e-9, atol=1e-9)


@laws
@given(groups, st.sampled_from(["off", "joint"]), seeds)
def test_no_element_nearby_or_elsewhere_is_better(group, rescale, seed):
    """Small and large steps away from the optimum, and signs turned where a group has them."""
    sides, draw = stretches(seed), generator(seed + 1)
    element, _ = solve(group, correlation_of(*sides), rescale)
    best = left(group, element, sides)
    for size in (1e-3, 1e-1, 1.0, 3.0):
        for _ in range(5):
            rival = group.compose(near(group, size, FREE[rescale], draw), element)
            assert bool((left(group, rival, sides) >= best - 1e-9 * best).all())
            if isinstance(group, Scale) and group.signed:
                signs = torch.randn(rival.shape, generator=draw, dtype=torch.float64).sign()
                assert bool((left(group, signs * rival, sides) >= best - 1e-9 * best).all())
            elif isinstance(group, Orthogonal) and not isinstance(group, OrthogonalFixingOnes):
                mirror = torch.eye(SIZE, dtype=torch.float64)
                mirror[0, 0] = -1
                assert bool((left(group, mirror @ rival, sides) >= best - 1e-9 * best).all())


@pytest.mark.parametrize("group", [Orthogonal(4), OrthogonalFixingOnes(4)], ids=str)
def test_rotations_of_a_stream_know_no_scale(group):
    correlation = correlation_of(*stretches(0))
    elements = [solve(group, correlation, rescale)[0] for rescale in ("off", "sequential", "joint")]
    assert all(torch.equal(element, elements[0]) for element in elements)


@pytest.mark.parametrize("group", [Rotary(4), Scale(4), Scale(4, signed=True)], ids=str)
def test_scales_matter_where_they_are_free(group):
    sides = stretches(1)
    kept, free = (left(group, solve(group, correlation_of(*sides), r)[0], sides) for r in ("off", "joint"))
    assert bool((free < 0.9 * kept).all())


@pytest.mark.parametrize("rescale", ["sequential", "joint"])
@pytest.mark.parametrize("group", [Invertible(4), Rotary(4), Scale(4), Scale(4, signed=True)], ids=str)
def test_a_planted_element_is_found(group: Group, rescale: Rescale):
    """One that the options can reach: a rotation and one scale, a number for each plane or coordinate."""
    a, _, d, _ = stretches(2)
    planted = group.random((HEADS,), generator(3))
    if isinstance(group, Invertible):
        planted = 1.7 * torch.linalg.qr(planted).Q
    sides = (a, group.act(planted, a), d, group.act(planted, d, dual=True))
    element, _ = solve(group, correlation_of(*sides), rescale)
    if rescale == "joint" or isinstance(group, Scale):
        torch.testing.assert_close(element, planted, rtol=1e-6, atol=1e-6)
    else:
        # The rotation is that of unscaled vectors, which are dominated by neither side here.
        assert bool(
            (left(group, element, sides) < left(group, solve(group, correlation_of(*sides), "off")[0], sides)).all()
        )
