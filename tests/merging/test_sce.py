"""SCE: entries on which models differ, coefficients by parameter, signs of the majority."""

import numpy as np
import pytest
import torch

from fusionlab.errors import InputError
from fusionlab.merging import merge_states
from tests.merging.near_base import changes_of, fine_tunes


@pytest.mark.parametrize("density", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("weights", [[1 / 3, 1 / 3, 1 / 3], [0.5, 0.2, 0.3]])
def test_equals_the_formula(density: float, weights: list[float]) -> None:
    """Select, calculate and erase, entry by entry."""
    base, states = fine_tunes(3)
    merged = merge_states(states, "sce", weights, base=base, density=density, lambda_=0.7)
    for name in base:
        changes = changes_of(base, states, name).numpy().reshape(3, -1)
        if density < 1:
            order = np.argsort(-changes.var(axis=0))
            changes[:, order[max(1, round(density * len(order))) :]] = 0
        shares = np.array(weights) * (changes**2).sum(axis=1)
        expected = base[name].numpy().flatten()
        for entry, column in enumerate(changes.T):
            sign = np.sign(np.dot(weights, column))
            agree = (np.sign(column) == sign) & (column != 0)
            if agree.any():
                expected[entry] += 0.7 * np.dot(shares[agree], column[agree]) / shares[agree].sum()
        np.testing.assert_allclose(merged[name].numpy().flatten(), expected, rtol=0, atol=1e-14)


def test_what_all_changed_alike_is_not_selected() -> None:
    """No variance, nothing to select: the base model's, unless everything is kept."""
    base, (state,) = fine_tunes(1)
    merged = merge_states([state, dict(state)], "sce", base=base)
    assert all(torch.equal(merged[name], tensor) for name, tensor in base.items())
    whole = merge_states([state, dict(state)], "sce", base=base, density=1.0)
    torch.testing.assert_close(whole["tall"], state["tall"])


@pytest.mark.parametrize("count", [3, 5, 7])
def test_equal_float32_models_have_no_variance(count: int) -> None:
    """Though the mean of equal numbers is not always that number, to rounding."""
    generator = torch.Generator().manual_seed(0)
    base, state = ({"w": torch.randn(1600, generator=generator)} for _ in range(2))
    merged = merge_states([dict(state) for _ in range(count)], "sce", base=base)
    assert torch.equal(merged["w"], base["w"])


def test_a_single_model_with_weight_is_kept() -> None:
    """It differs from no other, which does not make it the base model."""
    base, states = fine_tunes(2)
    for name, tensor in merge_states(states, "sce", [0, 1], base=base).items():
        torch.testing.assert_close(tensor, states[1][name], rtol=0, atol=1e-14)


def test_a_model_that_changed_little_counts_little() -> None:
    """Coefficients are shares of squares: three times the change, nine times the coefficient."""
    base = {"w": torch.zeros(4, dtype=torch.float64)}
    states = [{"w": torch.ones(4, dtype=torch.float64)}, {"w": torch.full((4,), 3.0, dtype=torch.float64)}]
    merged = merge_states(states, "sce", base=base, density=1.0)["w"]
    torch.testing.assert_close(merged, torch.full((4,), 2.8, dtype=torch.float64))


def test_density_out_of_range() -> None:
    """Refused by name."""
    base, states = fine_tunes(2)
    with pytest.raises(InputError, match=r"density is 0\.0"):
        merge_states(states, "sce", base=base, density=0.0)
