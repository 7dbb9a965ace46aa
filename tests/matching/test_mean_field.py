"""Means of rotations under a temperature: the cosine that is left, and its integral, against Bessel functions."""

import math

import pytest
import torch
from scipy.special import gammaln, ive

from fusionlab.matching.mean_field import shrinkage


@pytest.mark.parametrize(("size", "error"), [(2, 0.09), (8, 0.021), (64, 0.0025)])
def testshrinkage_is_the_ratio_of_bessel_functions(size, error):
    """I_{n/2} / I_{n/2 - 1}, never above it, the closer the larger the space; its integral is the gain."""
    strength = torch.linspace(0.01, 5 * size, 200, dtype=torch.float64, requires_grad=True)
    shrink, gain = shrinkage(strength, size)
    exact = torch.tensor([ive(size / 2, s) / ive(size / 2 - 1, s) for s in strength.tolist()])
    assert float((exact - shrink.detach()).max()) < error
    assert float((exact - shrink.detach()).min()) > -1e-12
    (slope,) = torch.autograd.grad(gain.sum(), strength)
    assert torch.allclose(slope, shrink.detach(), atol=1e-12)


@pytest.mark.parametrize(("size", "error"), [(2, 0.11), (8, 0.028), (64, 0.0035)])
def test_gain_is_the_logarithm_of_the_mean_of_the_exponential(size, error):
    """Over unit vectors, Gamma(n/2) (2/s)^(n/2 - 1) I_{n/2 - 1}(s); in the plane log I_0(s). A share below it."""
    strength = torch.linspace(0.01, 5 * size, 200, dtype=torch.float64)
    order = size / 2 - 1
    exact = torch.tensor([gammaln(size / 2) + order * math.log(2 / s) + math.log(ive(order, s)) + s for s in strength])
    if size == 2:
        assert torch.allclose(exact, torch.tensor([math.log(ive(0, s)) + s for s in strength], dtype=torch.float64))
    missing = (exact - shrinkage(strength, size)[1]) / exact
    assert float(missing.max()) < error
    assert float(missing.min()) > -1e-6
