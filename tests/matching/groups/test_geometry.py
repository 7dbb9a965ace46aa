"""What holds for every group that has a geometry, and what is said of one that has none."""

import itertools
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from fusionlab.matching.groups import geometry, registered, solve
from fusionlab.matching.solvers import Correlation
from fusionlab.symmetry import groups
from fusionlab.symmetry.groups import (
    Group,
    Invertible,
    Orthogonal,
    OrthogonalFixingOnes,
    Permutation,
    Rotary,
    Scale,
    Signs,
)
from tests.symmetry.models import generator

SIZE = 4
EVERY = [
    Permutation(SIZE),
    Invertible(SIZE),
    Orthogonal(SIZE),
    OrthogonalFixingOnes(SIZE),
    Rotary(SIZE),
    Rotary(SIZE, interleaved=True),
    Scale(SIZE),
    Scale(SIZE, signed=True),
    Signs(SIZE),
]
each = pytest.mark.parametrize("group", EVERY, ids=repr)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def matrices(group: Group, elements: Tensor) -> Tensor:
    """Elements as matrices that act on vectors, shape ``(copies, n, n)``."""
    eye = torch.eye(group.size, dtype=torch.float64)
    return group.act(elements, eye.expand(len(elements), *eye.shape))


def test_every_group_of_the_package_has_a_geometry() -> None:
    known = {kind for kind in vars(groups).values() if isinstance(kind, type) and issubclass(kind, Group)}
    assert known - {Group} == {type(group) for group in EVERY} <= set(registered())


@each
def test_the_closest_element_reaches_its_value_and_is_found_again(group: Group) -> None:
    """The value is ``<G, C>``; for the correlation of an element, which no other fits as well, it is that element."""
    found, value = geometry(group).closest(draw(3, SIZE, SIZE))
    assert group.check(found.double() if found.is_floating_point() else found, (3,)) is None
    moved = matrices(group, found)
    torch.testing.assert_close(moved @ moved.mT, torch.eye(SIZE, dtype=torch.float64).expand(3, SIZE, SIZE))
    torch.testing.assert_close((moved * draw(3, SIZE, SIZE)).sum((-2, -1)), value)
    again, largest = geometry(group).closest(moved)
    torch.testing.assert_close(matrices(group, again), moved)
    torch.testing.assert_close(largest, torch.full((3,), float(SIZE), dtype=torch.float64))


@each
def test_where_nothing_is_known_the_mean_is_the_prior_and_gains_nothing(group: Group) -> None:
    mean, gain = geometry(group).mean(torch.zeros(2, SIZE, SIZE, dtype=torch.float64))
    torch.testing.assert_close(mean, geometry(group).prior().expand(2, SIZE, SIZE))
    torch.testing.assert_close(gain, torch.zeros(2, dtype=torch.float64))


@each
def test_what_fits_grows_along_the_mean(group: Group) -> None:
    """The slope of the gain in the correlation is the mean, which is the mean's definition."""
    correlation = 0.5 * draw(2, SIZE, SIZE)
    step = draw(2, SIZE, SIZE, seed=1)
    ahead, behind = (geometry(group).mean(correlation + sign * 1e-5 * step)[1] for sign in (1, -1))
    mean, _ = geometry(group).mean(correlation)
    torch.testing.assert_close((ahead - behind) / 2e-5, (mean * step).sum((-2, -1)), rtol=1e-6, atol=1e-6)


def test_permutations_are_solved_as_the_best_of_all() -> None:
    """By trying the 24 of them, in every copy; the value is the one that distances follow from."""
    source, anchor = draw(2, 3, SIZE, 6)
    correlation = Correlation(
        anchor @ source.mT, torch.zeros(3, SIZE, SIZE), source.square().sum(-1), torch.zeros(3, SIZE)
    )
    found, value = solve(Permutation(SIZE), correlation, "off")
    for copy in range(3):
        orders = itertools.permutations(range(SIZE))
        best = min(orders, key=lambda order: float((source[copy, list(order)] - anchor[copy]).norm()))
        assert tuple(found[copy].tolist()) == best
        left = (source[copy, list(best)] - anchor[copy]).square().sum()
        torch.testing.assert_close(left, anchor[copy].square().sum() - value[copy])


@each
def test_only_groups_that_change_lengths_are_balanced(group: Group) -> None:
    """A writer twice as long as its reader is balanced by lengths; orthogonal matrices and permutations cannot."""
    primal, dual = 4 * torch.eye(SIZE, dtype=torch.float64), torch.eye(SIZE, dtype=torch.float64)
    if geometry(group).has_balance:
        moved = matrices(group, geometry(group).balance(primal[None], dual[None]))
        torch.testing.assert_close(moved, 0.5**0.5 * dual[None], rtol=1e-9, atol=1e-9)
    else:
        assert isinstance(group, Permutation | Orthogonal | Signs)
        with pytest.raises(TypeError, match="no balanced form"):
            geometry(group).balance(primal, dual)


def test_a_group_without_a_geometry_is_named() -> None:
    """Also one derived from another: its elements are others, so the other's optimum need not be among them."""

    @dataclass(frozen=True)
    class Special(Orthogonal):
        pass

    with pytest.raises(TypeError, match=r"O\(4\).*@geometry_of\(Special\)"):
        geometry(Special(4))
