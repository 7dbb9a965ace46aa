"""Assignments by few candidates are those of the dense solver, whatever the matrix; where they are not sure, None."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from fusionlab.matching import assignment as assigning
from fusionlab.matching import sparse_assignment as sparse
from fusionlab.matching.assignment import assignment
from fusionlab.matching.sparse_assignment import sparse_assignment
from tests.matching.problems_at_random import normal, seeds
from tests.symmetry.models import laws

pytest.importorskip("lap")


def total(correlation: Tensor, order: Tensor) -> float:
    return float(correlation.double()[torch.arange(len(order)), order].sum())


def optimum(correlation: Tensor) -> float:
    return total(correlation, torch.from_numpy(linear_sum_assignment(correlation.double().numpy(), maximize=True)[1]))


def scaled(n: int, seed: int) -> Tensor:
    """Rows and columns of very different length."""
    return normal(n, 1, seed=seed).exp() * normal(n, n, seed=seed + 1) * normal(1, n, seed=seed + 2).exp()


def of_dead_units(n: int, seed: int) -> Tensor:
    """A third of the rows and columns are zero."""
    alive = [(torch.rand(n, generator=torch.Generator().manual_seed(seed + i)) > 1 / 3).double() for i in (0, 1)]
    return alive[0][:, None] * (normal(n, 9, seed=seed) @ normal(9, n, seed=seed + 1)) * alive[1]


MATRICES: dict[str, Callable[[int, int], Tensor]] = {
    "normal": lambda n, seed: normal(n, n, seed=seed),
    "low rank": lambda n, seed: normal(n, 3, seed=seed) @ normal(3, n, seed=seed + 1),
    "scaled": scaled,
    "dead units": of_dead_units,
    "ties": lambda n, seed: normal(n, n, seed=seed).round(),
    "all negative": lambda n, seed: -torch.cdist(normal(n, 3, seed=seed), normal(n, 3, seed=seed + 1)),
    "one permutation": lambda n, seed: 9 * torch.eye(n).double()[normal(n, seed=seed).argsort()] + normal(n, n, seed=1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", MATRICES)
def test_the_optimum_is_found_or_nothing(kind, dtype):
    @laws
    @given(st.integers(1, 90), seeds, st.sampled_from([1e-20, 1.0, 1e15]))
    def law(n: int, seed: int, factor: float) -> None:
        correlation = (factor * MATRICES[kind](n, seed)).to(dtype)
        before = correlation.clone()
        order = sparse_assignment(correlation)
        assert torch.equal(correlation, before)
        if order is None:
            return
        assert sorted(order.tolist()) == list(range(n))
        bound = 8 * n * torch.finfo(dtype).eps * float(correlation.abs().max())
        assert total(correlation, order) >= optimum(correlation) - bound

    law()


@pytest.mark.parametrize("kind", ["normal", "all negative", "one permutation"])
def test_candidates_suffice_where_rows_differ(kind):
    """More rows than candidates, so that some must be added where the first guess of prices is wrong."""
    for seed in range(4):
        correlation = MATRICES[kind](200, 10 * seed)
        order = sparse_assignment(correlation)
        assert order is not None
        assert total(correlation, order) == pytest.approx(optimum(correlation), rel=1e-12)


def test_poor_prices_cost_rounds_and_nothing_else(monkeypatch):
    """The first guess of prices decides only which entries are tried first."""
    correlation = normal(150, 150, seed=3)
    monkeypatch.setattr(sparse, "_expected_prices", lambda matrix: normal(len(matrix), seed=4))
    for name, value in (("CANDIDATES", 2), ("HOPELESS", 1), ("ROUNDS", 200)):
        monkeypatch.setattr(sparse, name, value)
    order = sparse_assignment(correlation)
    assert order is not None
    assert total(correlation, order) == pytest.approx(optimum(correlation), rel=1e-12)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_is_left_to_others(value):
    correlation = normal(20, 20, seed=0)
    correlation[3, 4] = value
    assert sparse_assignment(correlation) is None
    assert sparse_assignment(torch.zeros(5, 5)) is None
    assert sparse_assignment(torch.zeros(0, 0)) is None


def test_large_problems_go_by_candidates_and_fall_back(monkeypatch):
    correlation = normal(60, 60, seed=0)
    monkeypatch.setattr(assigning, "LARGE", 60)
    asked = []
    monkeypatch.setattr(assigning, "sparse_assignment", lambda matrix: asked.append(len(matrix)))
    assert total(correlation, assignment(correlation)) == pytest.approx(optimum(correlation), rel=1e-6)
    assert asked == [60]
    monkeypatch.setattr(assigning, "sparse_assignment", lambda matrix: torch.arange(60))
    assert assignment(correlation).tolist() == list(range(60))
    monkeypatch.setattr(assigning, "LARGE", 61)
    assert total(correlation, assignment(correlation)) == pytest.approx(optimum(correlation), rel=1e-6)
