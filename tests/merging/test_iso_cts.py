"""Iso-CTS: common directions, directions of single models, one size for all."""

import numpy as np
import pytest
import scipy.linalg
import torch

from fusionlab.errors import InputError
from fusionlab.merging import merge_states
from tests.merging.near_base import changes_of, fine_tunes


def by_hand(changes: np.ndarray, each: int) -> np.ndarray:
    """The paper's algorithm for one matrix, given how many directions each model has for itself."""
    size = min(changes.shape[1:])
    shared = size - each * len(changes)
    left, values, right = np.linalg.svd(changes.sum(0), full_matrices=False)
    lefts, spectrum, rights = [left[:, :shared]], [values[:shared]], [right[:shared]]
    for change in changes:
        outside = change - left[:, :shared] @ left[:, :shared].T @ change
        own, sizes, reads = np.linalg.svd(outside, full_matrices=False)
        lefts.append(own[:, :each])
        spectrum.append(sizes[:each])
        rights.append(reads[:each])
    left, right = (scipy.linalg.polar(basis)[0] for basis in (np.concatenate(lefts, 1), np.concatenate(rights, 0)))
    return np.concatenate(spectrum).mean() * left @ right


@pytest.mark.parametrize(("common", "of_tall", "of_wide"), [(0.0, 3, 2), (0.5, 2, 2), (0.8, 1, 0)])
def test_equals_the_algorithm(common: float, of_tall: int, of_wide: int) -> None:
    """For two models, six and five directions, the task-specific ones counted by hand."""
    base, states = fine_tunes(2)
    merged = merge_states(states, "iso_cts", base=base, common=common, lambda_=1.3)
    for name, each in (("tall", of_tall), ("wide", of_wide)):
        expected = base[name] + 1.3 * torch.from_numpy(by_hand(changes_of(base, states, name).numpy(), each))
        torch.testing.assert_close(merged[name], expected, rtol=0, atol=1e-12)


def test_all_directions_common_is_iso_c() -> None:
    """Nothing is left for single models."""
    base, states = fine_tunes(3)
    merged = merge_states(states, "iso_cts", base=base, common=1.0)
    for name, tensor in merge_states(states, "iso_c", base=base).items():
        torch.testing.assert_close(merged[name], tensor, rtol=0, atol=1e-13)


@pytest.mark.parametrize("common", [-0.1, 1.1])
def test_fraction_out_of_range(common: float) -> None:
    """Refused by name."""
    base, states = fine_tunes(2)
    with pytest.raises(InputError, match=r"common is .*; expected a number from 0 to 1"):
        merge_states(states, "iso_cts", base=base, common=common)


def test_never_more_directions_than_there_are() -> None:
    """Five directions for two or for nine models, none of them common."""
    for count in (2, 4, 9):
        base, states = fine_tunes(count)
        merged = merge_states(states, "iso_cts", base=base, common=0.0)
        values = torch.linalg.svdvals(merged["wide"] - base["wide"])
        torch.testing.assert_close(values, values[0].expand(5), rtol=0, atol=1e-12)
