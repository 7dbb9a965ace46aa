"""The closed forms reach the optimum that searching reaches."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from fusionlab.matching import assignment as assigning
from fusionlab.matching.assignment import BFLOAT16_MARGIN, assignment, certified_assignment
from fusionlab.matching.groups import solve
from fusionlab.matching.solvers import Correlation, best_scale, procrustes
from fusionlab.symmetry.groups import Invertible, random_orthogonal
from tests.symmetry.models import generator, laws

seeds = st.integers(0, 2**31)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


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


# Assignment


def total(correlation: Tensor, order: Tensor) -> float:
    return float(correlation.double()[torch.arange(len(order)), order].sum())


def best_by_trying_all(correlation: Tensor) -> float:
    n = len(correlation)
    return max(total(correlation, torch.tensor(order)) for order in itertools.permutations(range(n)))


# Multiples of 1/8 are exact in float32, so that ties are ties in every solver.
matrices = (
    st.integers(1, 6)
    .flatmap(lambda n: hnp.arrays(np.float64, (n, n), elements=st.integers(-40, 40).map(lambda x: x / 8)))
    .map(torch.from_numpy)
)


@pytest.fixture(params=["lap", "scipy"])
def solver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "lap":
        pytest.importorskip("lap")
    else:
        monkeypatch.setattr(assigning, "lap", None)
    return request.param


@pytest.mark.parametrize("with_lap", [True, False])
def test_assignment_is_the_best_of_all_permutations(with_lap, monkeypatch):
    if not with_lap:
        monkeypatch.setattr(assigning, "lap", None)

    @laws
    @given(matrices)
    def best(correlation: Tensor) -> None:
        order = assignment(correlation)
        assert sorted(order.tolist()) == list(range(len(correlation)))
        assert total(correlation, order) == best_by_trying_all(correlation)

    best()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(3))
def test_assignment_agrees_with_scipy_on_large_problems(solver, dtype, seed):
    correlation = normal(200, 200, seed=seed).to(dtype)
    assert certified_assignment(correlation) is None
    expected = torch.from_numpy(linear_sum_assignment(correlation.double().numpy(), maximize=True)[1])
    found = assignment(correlation)
    assert found.dtype == torch.int64
    assert total(correlation, found) == pytest.approx(total(correlation, expected), rel=1e-7)


def test_assignment_leaves_its_input_alone(solver):
    correlation = normal(20, 20, seed=0).float()
    before = correlation.clone()
    assignment(correlation)
    assert torch.equal(correlation, before)


@laws
@given(matrices)
def test_certified_permutations_are_optimal(correlation):
    order = certified_assignment(correlation)
    if order is not None:
        assert total(correlation, order) == best_by_trying_all(correlation)


def test_clear_winners_are_certified_and_clashes_are_not():
    """The certificate is of use: it recognises a permutation that can be read off, and only that."""
    clear = 4 * torch.eye(5)[[3, 0, 4, 1, 2]] + 0.1 * normal(5, 5, seed=0).float()
    found = certified_assignment(clear)
    assert found is not None
    assert found.tolist() == [3, 0, 4, 1, 2]
    assert certified_assignment(clear, torch.full((5,), 3.0)).tolist() == [3, 0, 4, 1, 2]
    assert certified_assignment(clear, torch.full((5,), 5.0)) is None
    clear[0] = clear[1]
    assert certified_assignment(clear) is None


def near_ties(seed: int, spread: float, n: int = 2, features: int = 64) -> tuple[Tensor, Tensor]:
    """Units of a source and an anchor that come in pairs which differ by about bfloat16's rounding."""
    twins = normal(n // 2, features, seed=seed).repeat_interleave(2, 0)
    source = twins + spread * normal(n, features, seed=seed + 1)
    anchor = twins + spread * normal(n, features, seed=seed + 2)
    return source.float(), anchor.float()


def rounded(source: Tensor, anchor: Tensor) -> tuple[Tensor, Tensor]:
    """The correlation in bfloat16 and the bound on a row's entries."""
    correlation = (anchor.bfloat16() @ source.bfloat16().mT).float()
    return correlation, anchor.norm(dim=-1) * source.norm(dim=-1).max()


def test_rounding_margin_never_certifies_a_wrong_permutation():
    """Near-ties where the rounded argmax is a permutation but not the best one: they are left to the solver."""
    wrong = certain = 0
    for spread, seed in itertools.product((0.01, 0.03, 0.1, 0.2, 3.0), range(100)):
        source, anchor = near_ties(seed, spread)
        exact = anchor.double() @ source.double().mT
        best = best_by_trying_all(exact)
        correlation, bound = rounded(source, anchor)
        careless = certified_assignment(correlation)
        wrong += careless is not None and total(exact, careless) < best
        careful = certified_assignment(correlation, BFLOAT16_MARGIN * bound)
        if careful is not None:
            certain += 1
            assert total(exact, careful) == best
    assert wrong > 5, "the near-ties must fool the argmax, or this test shows nothing"
    assert certain > 5, "the margin must let clear cases through, or it is of no use"


@laws
@given(seeds, st.integers(1, 300))
def test_rounding_margin_covers_the_rounding_error(seed, features):
    """|rounded - exact| never exceeds half the margin, for well and badly scaled units."""
    scales = normal(20, 1, seed=seed + 2).mul(3).exp()
    source = (normal(20, features, seed=seed) * scales).float()
    anchor = (normal(20, features, seed=seed + 1) * scales.flip(0)).float()
    correlation, bound = rounded(source, anchor)
    error = (correlation.double() - anchor.double() @ source.double().mT).abs().amax(-1)
    assert bool((error <= BFLOAT16_MARGIN * bound / 2).all())


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
    for seed in range(25):
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
