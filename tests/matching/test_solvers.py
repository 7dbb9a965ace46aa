"""The closed forms reach the optimum that searching reaches."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fusionlab.matching.groups import solve
from fusionlab.matching.solvers import Correlation, best_scale, procrustes
from fusionlab.symmetry.groups import Invertible, random_orthogonal
from tests.matching.problems_at_random import normal, seeds
from tests.symmetry.models import generator, laws

# Procrustes


def descend(correlation: Tensor, start: Tensor) -> float:
    """The best <G, C> that gradient ascent over ``G = exp(skew) start`` finds: one component of O(n)."""
    n = correlation.shape[-1]
    free = torch.zeros(n, n, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([free], max_iter=200, line_search_fn="strong_wolfe", tolerance_change=1e-14)

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = -((torch.linalg.matrix_exp(free - free.mT) @ start) * correlation).sum()
        value.backward()
        return value

    optimizer.step(loss)
    return -float(loss().detach())


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_procrustes_is_the_best_that_descent_over_both_components_finds(n, seed):
    correlation = normal(n, n, seed=seed)
    rotation, value = procrustes(correlation)
    torch.testing.assert_close(rotation @ rotation.mT, torch.eye(n, dtype=torch.float64))
    assert float((rotation * correlation).sum()) == pytest.approx(float(value), abs=1e-12)
    mirror = torch.ones(n, 1, dtype=torch.float64)
    mirror[0] = -1
    drawn = [random_orthogonal(n, (), generator(s)) for s in range(4)]
    starts = [*drawn, *(mirror * rotation for rotation in drawn)]
    found = max(descend(correlation, start) for start in starts)
    assert float(value) == pytest.approx(found, rel=1e-7)


@laws
@given(st.integers(1, 6), seeds)
def test_no_random_rotation_beats_procrustes(n, seed):
    correlation = normal(2, n, n, seed=seed)
    rotation, value = procrustes(correlation)
    rivals = random_orthogonal(n, (200, 2), generator(seed + 1))
    assert bool(((rivals * correlation).sum((-2, -1)) <= value + 1e-12).all())
    assert rotation.shape == (2, n, n)


# Scale alone (the paper's Eq. 11 and 12)


def cost(scale: Tensor, p: Tensor, d: Tensor, pn: Tensor, dn: Tensor) -> Tensor:
    return scale**2 * pn + dn / scale**2 - 2 * (scale * p + d / scale)


def scale_problem(seed: int, heads: int = 20) -> tuple[Tensor, ...]:
    """<A, B>, <D, E>, |A|^2, |D|^2 of random heads whose sizes differ by orders of magnitude."""
    sizes = normal(4, heads, 1, seed=seed).mul(1.5).exp()
    a, b, d, e = normal(4, heads, 30, seed=seed + 1) * sizes
    b, e = b + 0.7 * a, e + 0.7 * d
    return (a * b).sum(-1), (d * e).sum(-1), a.square().sum(-1), d.square().sum(-1)


@laws
@given(seeds)
def test_best_scale_is_not_beaten_by_a_fine_grid_of_both_signs(seed):
    problem = scale_problem(seed)
    found = cost(best_scale(*problem), *problem)
    grid = torch.linspace(-12, 12, 20001, dtype=torch.float64).exp()
    grid = torch.cat([-grid, grid])
    rivals = cost(grid[:, None], *problem).amin(0)
    slack = 1e-9 * (problem[2] * problem[3]).sqrt()
    assert bool((found <= rivals + slack).all())


@laws
@given(seeds)
def test_best_scale_is_the_root_that_the_papers_procedure_chooses(seed):
    """Eq. 12: numpy's roots of the quartic, the real ones kept, the one with the smallest objective."""
    problem = scale_problem(seed, heads=5)
    found = best_scale(*problem)
    for head, (p, d, pn, dn) in enumerate(zip(*(x.tolist() for x in problem), strict=True)):
        roots = np.roots([pn, -p, 0.0, d, -dn])
        real = torch.from_numpy(roots.real[np.abs(roots.imag) < 1e-9 * np.abs(roots)])
        expected = real[cost(real, *map(torch.tensor, (p, d, pn, dn))).argmin()]
        assert float(found[head]) == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize("rescale", ["off", "sequential", "joint"])
@pytest.mark.parametrize("dead", ["primal source", "dual source", "source", "anchor", "primal anchor", "everything"])
def test_dead_heads_get_finite_invertible_elements(rescale, dead):
    """Zero queries, zero keys, or an anchor that is zero: nothing is best, and nothing breaks."""
    a, b, d, e = normal(4, 3, 4, 10, seed=0).clone()
    for part, name in ((a, "primal source"), (d, "dual source"), (b, "primal anchor"), (e, "dual anchor")):
        if name == dead or name.endswith(f" {dead}") or dead in ("everything", name.split(" ")[1]):
            part[1] = 0
    correlation = Correlation(b @ a.mT, e @ d.mT, a.square().sum(-1), d.square().sum(-1))
    element, value = solve(Invertible(correlation.primal.shape[-1]), correlation, rescale)
    assert bool(torch.isfinite(element).all())
    assert bool(torch.isfinite(value).all())
    assert bool((torch.linalg.det(element).abs() > 1e-12).all())
    alive, _ = solve(
        Invertible(4),
        Correlation(*(getattr(correlation, f)[::2] for f in ("primal", "dual", "primal_norm", "dual_norm"))),
        rescale,
    )
    torch.testing.assert_close(element[::2], alive)


# Rotation and scale together


def heads_apart(seed: int, heads: int = 12, n: int = 4, features: int = 9) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Independent heads whose queries and keys differ in size by orders of magnitude, row by row too."""
    sizes = normal(4, heads, 1, 1, seed=seed) + normal(4, heads, n, 1, seed=seed + 7)
    return tuple(normal(4, heads, n, features, seed=seed + 1) * sizes.exp())


def correlate(a: Tensor, b: Tensor, d: Tensor, e: Tensor) -> Correlation:
    return Correlation(b @ a.mT, e @ d.mT, a.square().sum(-1), d.square().sum(-1))


def value_of_scales(correlation: Correlation, grid: Tensor) -> Tensor:
    """The value that each scale reaches with its own best rotation, shape ``(grid, heads)``."""
    scale = grid[:, None]
    mixed = scale[..., None, None] * correlation.primal + correlation.dual / scale[..., None, None]
    gained = 2 * torch.linalg.svdvals(mixed).sum(-1)
    return gained - scale**2 * correlation.primal_norm.sum(-1) - correlation.dual_norm.sum(-1) / scale**2


def size_of(correlation: Correlation) -> Tensor:
    return (correlation.primal_norm.sum(-1) * correlation.dual_norm.sum(-1)).sqrt()


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("seed", range(6))
def test_joint_rotation_and_scale_is_not_beaten_by_a_fine_grid(n, seed):
    """Independent, badly scaled heads: thousands of scales, each with its own best rotation."""
    correlation = correlate(*heads_apart(100 * seed, n=n))
    element, value = solve(Invertible(correlation.primal.shape[-1]), correlation, "joint")
    rivals = value_of_scales(correlation, torch.linspace(-9, 9, 4001, dtype=torch.float64).exp()).amax(0)
    assert bool((value >= rivals - 1e-9 * size_of(correlation)).all())
    scale = torch.linalg.det(element).abs() ** (1 / n)
    rotation = element / scale[..., None, None]
    torch.testing.assert_close(rotation @ rotation.mT, torch.eye(n, dtype=torch.float64).expand(12, n, n))
    primal, dual = ((rotation * c).sum((-2, -1)) for c in (correlation.primal, correlation.dual))
    lengths = scale**2 * correlation.primal_norm.sum(-1) + correlation.dual_norm.sum(-1) / scale**2
    torch.testing.assert_close(value, 2 * (scale * primal + dual / scale) - lengths)


def valleys(values: Tensor) -> Tensor:
    """How many local maxima each column has."""
    inside = values[1:-1]
    return ((inside > values[:-2]) & (inside > values[2:])).sum(0)


def test_joint_rotation_and_scale_finds_the_better_of_several_valleys():
    """Heads built so that queries and keys call for different rotations: two maxima, far apart or close together."""
    grid = torch.linspace(-5, 5, 8001, dtype=torch.float64).exp()
    several = 0
    for seed in range(10):
        a, b, d, e = normal(4, 40, 2, 2, seed=seed)
        lead = normal(2, 40, 1, 1, seed=seed + 1000).abs() * 3
        # The anchor's queries are large and turned one way, its keys large and turned the other.
        correlation = correlate(a, b * (1 + lead[0]) - a, d, e * (1 + lead[1]) - d)
        values = value_of_scales(correlation, grid)
        _, value = solve(Invertible(correlation.primal.shape[-1]), correlation, "joint")
        assert bool((value >= values.amax(0) - 1e-9 * size_of(correlation)).all())
        several += int((valleys(values) > 1).sum())
    assert several > 20, "there must be heads with several valleys, or this test shows nothing"


@laws
@given(seeds)
def test_scale_helps_and_joint_never_loses_to_sequential(seed):
    correlation = correlate(*heads_apart(seed))
    _, off = solve(Invertible(correlation.primal.shape[-1]), correlation, "off")
    _, sequential = solve(Invertible(correlation.primal.shape[-1]), correlation, "sequential")
    _, joint = solve(Invertible(correlation.primal.shape[-1]), correlation, "joint")
    slack = 1e-9 * size_of(correlation)
    assert bool((sequential >= off - slack).all())
    assert bool((joint >= sequential - slack).all())
    assert float((joint - sequential).max()) > 0


@laws
@given(seeds)
def test_value_is_what_the_squared_distance_falls_by(seed):
    """|a R A - B|^2 + |R D / a - E|^2 = |B|^2 + |E|^2 - value, and likewise for the identity."""
    a, b, d, e = heads_apart(seed)
    correlation = correlate(a, b, d, e)
    rest = b.square().sum((-2, -1)) + e.square().sum((-2, -1))
    for rescale in ("off", "sequential", "joint"):
        element, value = solve(Invertible(correlation.primal.shape[-1]), correlation, rescale)
        dual = torch.linalg.inv(element).mT
        left = (element @ a - b).square().sum((-2, -1)) + (dual @ d - e).square().sum((-2, -1))
        torch.testing.assert_close(left, rest - value, rtol=1e-7, atol=1e-7)
    left = (a - b).square().sum((-2, -1)) + (d - e).square().sum((-2, -1))
    torch.testing.assert_close(left, rest - correlation.unchanged())
