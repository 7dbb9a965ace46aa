"""Task arithmetic: the base model and a multiple of the weighted sum of task vectors."""

import pytest
import torch

from fusionlab.errors import InputError
from fusionlab.merging import merge_states
from tests.merging.random_states import random_states


@pytest.mark.parametrize("lambda_", [0.0, 0.4, 1.0, 3.0])
def test_formula(lambda_: float) -> None:
    """``base + lambda_ sum w tau``, written out."""
    base, *states = random_states(4)
    weights = [0.2, 0.3, 0.5]
    merged = merge_states(states, "task_arithmetic", weights, base=base, lambda_=lambda_)
    for name, tensor in merged.items():
        total = sum(w * (s[name] - base[name]) for w, s in zip(weights, states, strict=True))
        torch.testing.assert_close(tensor, base[name] + lambda_ * total, rtol=0, atol=1e-14)


def test_the_papers_sum() -> None:
    """n models with equal weights and ``lambda_ = n lambda``: the plain sum of task vectors with the paper's lambda."""
    base, *states = random_states(4)
    merged = merge_states(states, "task_arithmetic", base=base, lambda_=3 * 0.4)
    for name, tensor in merged.items():
        expected = base[name] + 0.4 * sum(s[name] - base[name] for s in states)
        torch.testing.assert_close(tensor, expected, rtol=0, atol=1e-14)


def test_one_is_the_weighted_mean() -> None:
    """With ``lambda_`` 1 the base model cancels."""
    base, *states = random_states(3)
    merged = merge_states(states, "task_arithmetic", [1, 4], base=base)
    for name, tensor in merge_states(states, "simple", [1, 4]).items():
        torch.testing.assert_close(merged[name], tensor, rtol=0, atol=1e-14)


def test_half_precision_differences_are_taken_in_float32() -> None:
    """The difference of two bfloat16 numbers is exact there, so that the result is the exact one's nearest bfloat16.

    Or the next one where float32's rounding, 2**-22 of the numbers at most, decides between the two.
    """
    base, first, second = random_states(3, torch.bfloat16)
    merged = merge_states([first, second], "task_arithmetic", base=base, lambda_=0.1)
    for name, tensor in merged.items():
        a, b, c = (state[name].double() for state in (base, first, second))
        exact = a + 0.1 * ((b + c) / 2 - a)
        slack = 2**-22 * torch.stack((a, b, c)).abs().amax(0)
        assert bool(((tensor.double() - exact).abs() <= (exact.bfloat16().double() - exact).abs() + slack).all())


def test_base_is_needed_and_fits() -> None:
    """Without one, or with one of another shape, there is nothing to subtract."""
    base, *states = random_states(3)
    with pytest.raises(InputError, match="needs the base model"):
        merge_states(states, "task_arithmetic")
    with pytest.raises(InputError, match="has shapes"):
        merge_states(states, "task_arithmetic", base={**base, "b": torch.zeros(7)})
