"""A change of outputs is told beside numbers that stand for what is masked."""

import pytest
import torch

from fusionlab.symmetry.change import relative_change


def test_of_the_largest() -> None:
    expected = torch.tensor([1.0, -4.0, 0.0])
    assert relative_change(expected + torch.tensor([0.0, 0.0, 0.2]), expected) == pytest.approx(0.05)
    assert relative_change(torch.tensor([0.5]), torch.zeros(1)) == 0.5
    assert relative_change(torch.zeros(0), torch.zeros(0)) == 0


@pytest.mark.parametrize("constant", [-1e9, -1e4, torch.finfo(torch.float64).min])
def test_masked_places_hide_nothing(constant: float) -> None:
    expected = torch.tensor([constant, 2.0, constant, -4.0], dtype=torch.float64)
    out = expected.clone()
    out[1] += 0.2
    assert relative_change(out, expected) == pytest.approx(0.05)
    out = expected.clone()
    out[0] = 2.0
    assert relative_change(out, expected) > 0.9


def test_large_numbers_that_are_computed_are_no_masks() -> None:
    """There is no gap between them and the others, and rounding is relative to them."""
    expected = torch.tensor([1.0, 90.0, 2e3, 5e4])
    assert relative_change(expected + 1e-3, expected) == pytest.approx(2e-8, rel=0.1)


def test_what_is_no_number_is_told() -> None:
    assert torch.tensor(relative_change(torch.tensor([1.0, torch.nan]), torch.ones(2))).isnan()
