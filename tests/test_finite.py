"""Finite numbers are told from those that are not, whatever their sum is."""

import pytest
import torch

from fusionlab.finite import all_finite

TYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("place", [0, 2**18 - 1, 2**18, 2**18 + 4])
def test_one_bad_number_is_found_anywhere(bad, dtype, place):
    numbers = torch.ones(2**18 + 5, dtype=dtype)
    assert all_finite(numbers)
    numbers[place] = bad
    assert not all_finite(numbers)


def test_infinities_of_both_signs_are_found():
    assert not all_finite(torch.tensor([float("inf"), -float("inf")]))


@pytest.mark.parametrize("dtype", TYPES)
def test_a_sum_that_overflows_is_no_bad_number(dtype):
    numbers = torch.full((3, 5), torch.finfo(dtype).max, dtype=dtype)
    assert all_finite(numbers)
    assert all_finite(numbers.T)
    numbers[1, 4] = float("nan")
    assert not all_finite(numbers.T)


def test_integers_and_nothing_are_finite():
    assert all_finite(torch.arange(4))
    assert all_finite(torch.empty(0))
