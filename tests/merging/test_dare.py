"""DARE: random entries of the task vectors, rescaled so that their expectation stays."""

from typing import Any

import pytest
import torch

from fusionlab.errors import InputError
from fusionlab.merging import merge_states
from tests.merging.random_states import State, random_states


@pytest.mark.parametrize("combination", ["linear", "ties"])
def test_nothing_dropped_is_the_combination_alone(combination: str) -> None:
    """At density 1: task arithmetic, and TIES without trimming."""
    base, *states = random_states(4)
    other = {"linear": ("task_arithmetic", {}), "ties": ("ties", {"density": 1.0})}[combination]
    merged = merge_states(states, "dare", [1, 2, 3], base=base, density=1.0, combination=combination)
    for name, tensor in merge_states(states, other[0], [1, 2, 3], base=base, **other[1]).items():
        torch.testing.assert_close(merged[name], tensor, rtol=0, atol=1e-14)


@pytest.mark.parametrize("density", [0.2, 0.7])
def test_entries_are_dropped_or_rescaled(density: float) -> None:
    """Of one model with all the weight every change is gone or divided by the density, in that proportion."""
    base = {"w": torch.zeros(200, 100, dtype=torch.float64)}
    change = {"w": torch.randn(200, 100, generator=torch.Generator().manual_seed(1), dtype=torch.float64)}
    merged = merge_states([change, change], "dare", [1, 0], base=base, density=density)["w"]
    kept = merged != 0
    torch.testing.assert_close(merged[kept], change["w"][kept] / density)
    # Five standard deviations of a binomial count.
    assert abs(float(kept.double().mean()) - density) < 5 * (density * (1 - density) / 20000) ** 0.5


@pytest.mark.parametrize("combination", ["linear", "ties"])
def test_each_model_may_have_a_density_of_its_own(combination: str) -> None:
    """What is left of each is combined: found by itself, with all the weight on it, and its own density."""
    base, *states = random_states(4)
    shares, left = [0.9, 0.2, 0.6], list[State]()
    for place, share in enumerate(shares):
        alone = [float(index == place) for index in range(3)]
        left.append(merge_states(states, "dare", alone, base=base, density=share, seed=2))
    other = {"linear": ("task_arithmetic", {}), "ties": ("ties", {"density": 1.0})}[combination]
    expected = merge_states(left, other[0], [1, 2, 3], base=base, **other[1])
    given: dict[str, Any] = {"base": base, "seed": 2, "combination": combination}
    for name, tensor in merge_states(states, "dare", [1, 2, 3], density=shares, **given).items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-14)


def test_expectation_is_task_arithmetic() -> None:
    """The mean over many seeds tends to it."""
    base, *states = random_states(3)
    merged = [merge_states(states, "dare", base=base, density=0.5, seed=seed)["w"] for seed in range(1500)]
    expected = merge_states(states, "task_arithmetic", base=base)["w"]
    stacked = torch.stack(merged)
    error = (stacked.mean(0) - expected) / (stacked.std(0) / len(merged) ** 0.5)
    assert float(error.abs().max()) < 4.5


def test_seeded() -> None:
    """One seed gives one result, whatever was drawn before, and models are masked independently."""
    base, *states = random_states(3)
    first, again, other = (merge_states(states, "dare", base=base, seed=seed)["w"] for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    ones = [{"w": torch.ones(1000)} for _ in range(2)]
    merged = merge_states(ones, "dare", base={"w": torch.zeros(1000)})["w"]
    assert set(merged.tolist()) == {0.0, 1.0, 2.0}


def test_bad_input() -> None:
    """Refused by name."""
    base, *states = random_states(3)
    with pytest.raises(InputError, match="density is 0"):
        merge_states(states, "dare", base=base, density=0)
    with pytest.raises(InputError, match="combination is 'sum'; expected one of linear, ties"):
        merge_states(states, "dare", base=base, combination="sum")
