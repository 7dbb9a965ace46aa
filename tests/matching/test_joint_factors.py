"""Factors that share stretches or act by powers: the best ones against fine grids."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fusionlab.matching.balancing import balancing_factors, balancing_power
from fusionlab.matching.joint_factors import best_factors, best_power, left
from fusionlab.matching.solvers import best_scale
from fusionlab.symmetry import Space
from fusionlab.symmetry.groups import Group, Scale, Signs
from tests.matching.problems_at_random import normal, seeds
from tests.symmetry.models import laws

GRID = torch.cat([side * torch.linspace(-4, 4, 1601, dtype=torch.float64).exp() for side in (1, -1)])
powers = st.sets(st.sampled_from([-4, -3, -2, -1, 1, 2, 3]), min_size=2, max_size=3).filter(
    lambda found: min(found) < 0 < max(found)
)


def terms(keys: list[tuple[tuple[str, int], ...]], seed: int, count: int = 5) -> dict:
    """Products and squared lengths of vectors of three numbers, for some units."""
    found = {}
    for number, key in enumerate(keys):
        a, b = normal(count, 3, seed=seed + number), normal(count, 3, seed=seed + 50 + number)
        found[key] = (a * b).sum(-1), a.square().sum(-1)
    return found


@laws
@given(powers, seeds, st.booleans())
def test_one_factor_by_powers_is_the_best_on_a_grid(drawn: set[int], seed: int, positive: bool) -> None:
    found = {dict(key)["x"]: pair for key, pair in terms([(("x", p),) for p in sorted(drawn)], seed).items()}
    best = best_power(found, positive)

    def cost(x: Tensor) -> Tensor:
        return torch.stack([n * x ** (2 * p) - 2 * c * x**p for p, (c, n) in found.items()]).sum(0)

    grid = GRID[GRID > 0] if positive else GRID
    assert bool((cost(best) <= cost(grid.unsqueeze(1)).amin(0) + 1e-9).all())
    assert not positive or bool((best > 0).all())


@laws
@given(seeds)
def test_the_powers_one_and_minus_one_are_the_papers_quartic(seed: int) -> None:
    found = terms([(("x", 1),), (("x", -1),)], seed)
    (p, pn), (d, dn) = found.values()
    space = Space("x", Scale(1, signed=True), "x", copies=(5,))
    torch.testing.assert_close(best_factors([space], found, "joint")["x"][:, 0], best_scale(p, d, pn, dn))


def test_without_two_sides_no_factor_is_best() -> None:
    one = torch.ones(3, dtype=torch.float64)
    assert best_power({1: (one, one), 2: (one, one)}, positive=True).tolist() == [1, 1, 1]
    assert best_power({1: (one, one), -2: (0 * one, 0 * one)}, positive=True).tolist() == [1, 1, 1]


STREAM: tuple[dict[str, Group], list] = (
    {"s": Signs(1), "f": Scale(1, signed=True), "g": Scale(1, signed=True)},
    [(("s", 1),), (("f", 1),), (("g", 1),), (("f", -1), ("s", -1)), (("g", -1), ("s", -1))],
)
GATED: tuple[dict[str, Group], list] = (
    {"a": Scale(1), "b": Scale(1, signed=True)},
    [(("a", 1),), (("b", 1),), (("a", -1), ("b", -1))],
)
SQUARED_GATE: tuple[dict[str, Group], list] = (
    {"a": Scale(1), "b": Scale(1, signed=True)},
    [(("a", 1),), (("b", 1),), (("a", -2), ("b", -1))],
)
JOINT = {"stream": STREAM, "gated": GATED, "squared gate": SQUARED_GATE}


def spaces_of(groups: dict[str, Group]) -> list[Space]:
    return [Space(name, group, "x", copies=(5,)) for name, group in groups.items()]


def options(group: Group, fine: int) -> Tensor:
    if isinstance(group, Signs):
        return torch.tensor([1.0, -1.0], dtype=torch.float64)
    sizes = torch.linspace(-2.5, 2.5, fine, dtype=torch.float64).exp()
    return torch.cat([sizes, -sizes]) if group.signed else sizes


@pytest.mark.parametrize("name", JOINT)
@pytest.mark.parametrize("seed", range(0, 600, 100))
def test_factors_together_are_the_best_on_a_grid(name: str, seed: int) -> None:
    groups, keys = JOINT[name]
    found = terms(keys, seed)
    best = best_factors(spaces_of(groups), found, "sequential")
    reached = left(found, {n: factor[:, 0] for n, factor in best.items()})
    grids = torch.meshgrid(*(options(group, 81) for group in groups.values()), indexing="ij")
    grid = {n: x.flatten()[:, None] for n, x in zip(groups, grids, strict=True)}
    assert bool((reached <= left(found, grid).amin(0) + 1e-9).all())
    assert all(bool((best[n] > 0).all()) for n, group in groups.items() if group == Scale(1))


@pytest.mark.parametrize("name", JOINT)
@pytest.mark.parametrize("seed", range(0, 600, 100))
def test_signs_together_are_the_best_of_all(name: str, seed: int) -> None:
    groups, keys = JOINT[name]
    found = terms(keys, seed)
    best = best_factors(spaces_of(groups), found, "off")
    assert all(bool((factor.abs() == 1).all()) for factor in best.values())
    signed = [n for n, group in groups.items() if group != Scale(1)]
    rivals = [
        left(found, {n: torch.tensor(sign) for n, sign in zip(signed, choice, strict=True)})
        for choice in itertools.product((1.0, -1.0), repeat=len(signed))
    ]
    torch.testing.assert_close(left(found, {n: f[:, 0] for n, f in best.items()}), torch.stack(rivals).amin(0))


@laws
@given(powers, seeds)
def test_the_balanced_factor_is_where_what_it_acts_on_is_shortest(drawn: set[int], seed: int) -> None:
    squares = {p: normal(6, seed=seed + p).square() + 1e-3 for p in drawn}
    x = balancing_power(squares)
    slope = torch.stack([p * n * x ** (2 * p) for p, n in squares.items()])
    assert bool((slope.sum(0).abs() <= 1e-10 * slope.abs().sum(0)).all())


def test_the_balanced_factor_by_one_and_minus_one_is_a_fourth_root() -> None:
    one, other = normal(6, seed=1).square(), normal(6, seed=2).square()
    torch.testing.assert_close(balancing_power({1: one, -1: other}), balancing_factors(one, other))
    assert balancing_power({1: one}).tolist() == [1] * 6
    assert balancing_power({2: one, -1: 0 * one}).tolist() == [1] * 6
