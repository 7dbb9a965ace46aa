"""Optimal transport between units: costs, plans, and what becomes of solvers that do not end."""

import numpy as np
import ot
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from fusionlab.errors import InputError
from fusionlab.matching import transport as transporting
from fusionlab.matching.transport import ground_cost, transport
from tests.symmetry.models import generator

METRICS = ("euclidean", "sqeuclidean", "cosine")


def features(units: int, seed: int, size: int = 7) -> torch.Tensor:
    return torch.randn(units, size, generator=generator(seed), dtype=torch.float64)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("normalised", [False, True])
def test_ground_cost_is_scipys(metric, normalised):
    """Distances of rows as scipy computes them, on rows of length one where that is asked for."""
    a, b = features(9, 0), features(6, 1)
    x, y = (rows / rows.norm(dim=1, keepdim=True) if normalised else rows for rows in (a, b))
    expected = cdist(y.numpy(), x.numpy(), metric)
    np.testing.assert_allclose(ground_cost(a, b, metric, normalised).numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_units_that_coincide_cost_nothing(metric):
    """A unit and itself, in either type and on any scale, and a unit that is dead in both models."""
    for rows in (features(8, 0), 1e-8 * features(8, 1), features(8, 2).float()):
        assert float(ground_cost(rows, rows, metric).diagonal().max()) < 1e-12
    dead = torch.zeros(3, 5)
    assert bool(torch.isfinite(ground_cost(dead, features(3, 0, 5), metric)).all())


@pytest.mark.parametrize("metric", METRICS)
def test_exact_transport_is_the_assignment(metric):
    """With uniform weights the optimal plan is a permutation, the one that solves the assignment problem."""
    for seed in range(5):
        cost = ground_cost(features(30, seed), features(30, seed + 10), metric)
        plan = transport(cost)
        rows, order = linear_sum_assignment(cost.numpy())
        assert torch.equal(plan, torch.eye(30, dtype=torch.float64)[torch.from_numpy(order)])
        assert float((plan * cost).sum()) == pytest.approx(cost.numpy()[rows, order].sum())


def test_sinkhorn_tends_to_the_exact_plan():
    """The distance to the permutation falls with the regularisation, down to almost nothing."""
    cost = ground_cost(features(12, 0), features(12, 1))
    exact = transport(cost)
    distances = [
        float((transport(cost, "sinkhorn", regularization, "max") - exact).abs().max())
        for regularization in (1.0, 0.1, 0.01, 0.002)
    ]
    assert distances == sorted(distances, reverse=True)
    assert distances[0] > 0.5
    assert distances[-1] < 1e-3


def test_sinkhorn_is_the_entropic_optimum():
    """Diagonal scalings of exp(-cost / regularisation) with uniform marginals: what defines it."""
    cost, regularization = ground_cost(features(9, 0), features(9, 1)), 0.3
    plan = transport(cost, "sinkhorn", regularization, "none")
    torch.testing.assert_close(plan.sum(0), torch.ones(9, dtype=torch.float64), atol=1e-7, rtol=0)
    torch.testing.assert_close(plan.sum(1), torch.ones(9, dtype=torch.float64), atol=1e-12, rtol=0)
    interaction = plan.log() + cost / regularization
    centred = interaction - interaction.mean(0) - interaction.mean(1, keepdim=True) + interaction.mean()
    assert float(centred.abs().max()) < 1e-9


def test_scaling_takes_the_unit_out_of_the_cost():
    """Costs in other units give the same plan, as long as they are scaled."""
    cost = ground_cost(features(10, 0), features(10, 1))
    for scaling in ("max", "median"):
        plans = [transport(factor * cost, "sinkhorn", 0.1, scaling) for factor in (1.0, 1e6)]
        torch.testing.assert_close(*plans, atol=1e-9, rtol=0)


def test_models_of_different_widths():
    """Every row of the map sums to one, whatever the numbers of units are."""
    cost = ground_cost(features(9, 0), features(6, 1))
    for solver in ("exact", "sinkhorn"):
        plan = transport(cost, solver)
        assert plan.shape == (6, 9)
        torch.testing.assert_close(plan.sum(1), torch.ones(6, dtype=torch.float64))


def test_solver_that_stops_early_starts_again(monkeypatch):
    """The network simplex is given too few steps: its plan is not taken, it solves again with more."""
    cost = ground_cost(features(40, 0), features(40, 1))
    expected = transport(cost)
    asked = []
    solve = ot.lp.emd

    def watched(*arguments, numItermax, **options):
        asked.append(numItermax)
        return solve(*arguments, numItermax=numItermax, **options)

    monkeypatch.setattr(ot.lp, "emd", watched)
    monkeypatch.setattr(transporting, "EXACT_STEPS", 5)
    assert torch.equal(transport(cost), expected)
    assert asked[0] == 5
    assert len(asked) > 1


def test_solver_that_never_ends_is_refused(monkeypatch):
    """Out of steps at every attempt, or a regularisation too small to converge: one sentence, no plan."""
    cost = ground_cost(features(40, 0), features(40, 1))
    monkeypatch.setattr(transporting, "EXACT_STEPS", 1)
    monkeypatch.setattr(transporting, "GROWTH", 1)
    with pytest.raises(InputError, match="not optimal after 1 steps"):
        transport(cost)
    monkeypatch.setattr(transporting, "SINKHORN_STEPS", 3)
    with pytest.raises(InputError, match="did not converge in 3 steps"):
        transport(cost, "sinkhorn", 0.001)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"solver": "emd"}, "solver is 'emd'"),
        ({"scaling": "mean"}, "scaling is 'mean'"),
        ({"solver": "sinkhorn", "regularization": 0.0}, "regularization is 0.0"),
        ({"solver": "sinkhorn", "regularization": float("nan")}, "regularization is nan"),
    ],
)
def test_options_are_checked(options, words):
    """An option that does not exist is named."""
    with pytest.raises(InputError, match=words):
        transport(torch.ones(2, 2), **options)
    with pytest.raises(InputError, match="not finite"):
        transport(torch.full((2, 2), torch.nan))
    with pytest.raises(InputError, match="metric is 'angle'"):
        ground_cost(torch.ones(2, 2), torch.ones(2, 2), "angle")
