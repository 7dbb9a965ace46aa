"""Assignments reach the optimum of all permutations, and are certified only where rounding cannot matter."""

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
from tests.matching.problems_at_random import normal, seeds
from tests.symmetry.models import laws

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


@pytest.mark.parametrize(("sources", "anchors"), [(2, 5), (5, 2), (5, 5), (4, 0), (0, 4)])
def test_units_without_correlation_take_the_places_that_are_left(
    sources: int, anchors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As new units of a grown model on either side; where candidates do not suffice."""
    monkeypatch.setattr(assigning, "LARGE", 0)
    monkeypatch.setattr(assigning, "sparse_assignment", lambda _: None)
    for seed in range(5):
        draw = torch.Generator().manual_seed(seed)
        correlation = torch.randn(7, 7, generator=draw)
        correlation[:, torch.randperm(7, generator=draw)[:sources]] = 0
        correlation[torch.randperm(7, generator=draw)[:anchors]] = 0
        order = assignment(correlation)
        assert sorted(order.tolist()) == list(range(7))
        assert total(correlation, order) == pytest.approx(best_by_trying_all(correlation))
