"""Muon inside the groups: every singular value of a step alike, Adam's rule where nothing is a matrix."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fusionlab.matching.coordinates import even, even_rotation, skew_dimension, skew_matrices
from fusionlab.matching.groups import geometry
from fusionlab.matching.muon import ADAM, Muon
from fusionlab.symmetry.groups import (
    Group,
    Invertible,
    Orthogonal,
    OrthogonalFixingOnes,
    Rotary,
    Scale,
)
from tests.matching.refining import rotation_left
from tests.symmetry.models import generator

# What the iteration makes of one, at least and at most (Jordan et al., 2024).
LEAST, MOST = 0.68, 1.14


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64)


@given(size=st.integers(1, 12), exponent=st.integers(-300, 300), seed=st.integers(0, 99))
def test_singular_vectors_stay_and_singular_values_are_alike(size: int, exponent: int, seed: int) -> None:
    """In the basis of a matrix's singular vectors what is made of it is diagonal, at any scale."""
    left, _, right = torch.linalg.svd(drawn(2, size, size, seed=seed))
    values = 0.05 + 0.95 * torch.rand(2, size, generator=generator(seed), dtype=torch.float64)
    found = left.mT @ even(10.0**exponent * (left * values.unsqueeze(-2)) @ right) @ right.mT / math.sqrt(size)
    assert torch.allclose(found, torch.diag_embed(found.diagonal(dim1=-2, dim2=-1)), atol=1e-10)
    assert ((found.diagonal(dim1=-2, dim2=-1) > LEAST) & (found.diagonal(dim1=-2, dim2=-1) < MOST)).all()


def test_nothing_is_made_of_nothing() -> None:
    assert torch.equal(even(torch.zeros(3, 4, 4)), torch.zeros(3, 4, 4))


def test_half_precision_is_worked_on_in_float32() -> None:
    matrices = drawn(2, 6, 6).bfloat16()
    # To a unit in the last place of bfloat16; five iterations in it would be off by several.
    torch.testing.assert_close(even(matrices).float(), even(matrices.float()), rtol=2**-7, atol=1e-6)


@pytest.mark.parametrize("size", [7, 8])
def test_rotations_turn_all_planes_at_one_pace(size: int) -> None:
    """A skew matrix of an odd size has one vector that no plane holds."""
    coordinates = drawn(3, skew_dimension(size))
    found = torch.linalg.svdvals(skew_matrices(even_rotation(coordinates, size), size)) / math.sqrt(size)
    planes = size - size % 2
    # The smallest of few random planes may be below what the iteration lifts.
    assert (found[..., : planes - 2] > LEAST).all()
    assert (found < MOST).all()
    assert (found[..., planes:] < 1e-9).all()


GROUPS: list[tuple[Group, bool, int | None]] = [
    (Orthogonal(6), False, 6),
    (Orthogonal(6), True, 6),
    (OrthogonalFixingOnes(6), True, 5),
    (Invertible(6), False, 6),
    (Invertible(6), True, 6),
    (Rotary(6), True, None),
    (Scale(6), True, None),
]


@pytest.mark.parametrize(("group", "is_general", "size"), GROUPS, ids=str)
def test_steps_lower_a_linear_loss_in_every_group(group: Group, is_general: bool, size: int | None) -> None:
    """A step against a gradient, of the length that was asked for; what is no matrix has its sign, as Adam's first."""
    how = geometry(group)
    gradient = drawn(2, 3, how.coordinates(is_general))
    found = how.steepest(gradient, is_general)
    parameter = nn.Parameter(torch.zeros_like(gradient))
    parameter.grad = gradient
    Muon([parameter], [lambda momentum: how.steepest(momentum, is_general)], 0.1).step()
    moved = parameter.detach()
    assert float((moved * gradient).sum()) < 0
    if size is None:
        assert found is None
        assert torch.allclose(moved, -0.1 * ADAM * gradient.sign(), rtol=1e-4)
    else:
        assert found is not None
        assert torch.allclose(moved, -0.1 * found)
        assert 0.5 < float(found.square().mean().sqrt()) < 1.2


def test_momentum_is_nesterovs() -> None:
    """The second step goes along the mean of both gradients, and once more ahead."""
    first, second, momentum = drawn(1, 9), drawn(1, 9, seed=1), 0.9
    parameter = nn.Parameter(torch.zeros(1, 9, dtype=torch.float64))
    seen: list[Tensor] = []

    def noted(x: Tensor) -> Tensor:
        seen.append(x)
        return x

    optimizer = Muon([parameter], [noted], 0.1, momentum)
    for gradient in (first, second):
        parameter.grad = gradient
        optimizer.step()
    mean = momentum * (1 - momentum) * first + (1 - momentum) * second
    assert torch.allclose(seen[1], (1 - momentum) * second + momentum * mean)
    assert torch.allclose(parameter.detach(), -0.1 * (seen[0] + seen[1]))


def test_what_is_no_matrix_moves_as_by_torchs_adam() -> None:
    """Over several steps, four times as far."""
    ours, theirs = (nn.Parameter(drawn(3, 5)) for _ in range(2))
    optimizers = [Muon([ours], [None], 0.01, momentum=0.9), torch.optim.Adam([theirs], lr=4 * 0.01)]
    for step in range(5):
        for parameter, optimizer in zip((ours, theirs), optimizers, strict=True):
            parameter.grad = drawn(3, 5, seed=step + 1)
            optimizer.step()
    torch.testing.assert_close(ours, theirs)


def test_a_rotation_is_found() -> None:
    """The closure is asked for the loss."""
    assert rotation_left(lambda coordinates: Muon([coordinates], [lambda x: even_rotation(x, 6)], 0.01)) < 0.01
