"""Means of every group under a temperature: nothing when hot, the best element when cold."""

import itertools
import math

import pytest
import torch

from fusionlab.matching.groups import geometry, solve
from fusionlab.matching.groups.rotary import plane_correlations
from fusionlab.matching.solvers import Correlation, procrustes
from fusionlab.symmetry.groups import Invertible, OrthogonalFixingOnes, Permutation, Rotary, Scale
from tests.symmetry.models import generator


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


@pytest.mark.parametrize("group", [Invertible(6), OrthogonalFixingOnes(6), Rotary(6), Rotary(6, interleaved=True)])
def test_mean_is_nothing_when_hot_and_the_best_element_when_cold(group):
    """In between it is a contraction, and it turns with the bases of both models."""
    correlation = draw(6, 6)
    hot, cold = geometry(group).mean(1e-9 * correlation)[0], geometry(group).mean(1e9 * correlation)[0]
    fixed = torch.full((6, 6), 1 / 6, dtype=torch.float64) if isinstance(group, OrthogonalFixingOnes) else 0
    assert float((hot - fixed).abs().max()) < 1e-8
    assert torch.allclose(cold @ cold.mT, torch.eye(6, dtype=torch.float64), atol=1e-6)
    if isinstance(group, Rotary):
        best = plane_correlations(group, correlation).abs().sum()
    else:
        nothing = torch.zeros(6, 6, dtype=torch.float64)
        # The squared distance falls by twice the product, and vectors without length leave nothing else.
        best = solve(group, Correlation(correlation, nothing, nothing[0], nothing[0]), "off")[1] / 2
    assert float((cold * correlation).sum()) == pytest.approx(float(best), rel=1e-7)
    between = geometry(group).mean(correlation)[0]
    assert float(torch.linalg.matrix_norm(between, 2)) <= 1 + 1e-12


def test_mean_rotation_turns_with_both_models():
    left, right = procrustes(draw(6, 6, seed=1))[0], procrustes(draw(6, 6, seed=2))[0]
    correlation = draw(6, 6)
    turned = geometry(Invertible(6)).mean(left @ correlation @ right)[0]
    assert torch.allclose(turned, left @ geometry(Invertible(6)).mean(correlation)[0] @ right, atol=1e-12)


def test_mean_sign_is_the_one_of_two_weighted_by_their_likelihoods():
    correlation = torch.tensor([[0.7]], dtype=torch.float64)
    mean, gain = geometry(Scale(1, signed=True)).mean(correlation)
    up, down = math.exp(0.7), math.exp(-0.7)
    assert float(mean) == pytest.approx((up - down) / (up + down))
    assert float(gain) == pytest.approx(math.log((up + down) / 2))


@pytest.mark.parametrize("size", [0.1, 3.0, 300.0])
def test_mean_permutation_is_doubly_stochastic_and_cold_it_is_the_assignment(size):
    value = size * draw(5, 5)
    mean = geometry(Permutation(5)).mean(value)[0]
    assert torch.allclose(mean.sum(0), torch.ones(5, dtype=torch.float64))
    assert float((mean.sum(1) - 1).abs().max()) < 0.05
    if size == 300.0:
        orders = itertools.permutations(range(5))
        best = max(orders, key=lambda order: sum(float(value[i, j]) for i, j in enumerate(order)))
        assert tuple(mean.argmax(1).tolist()) == best
