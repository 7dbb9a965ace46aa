"""Breadcrumbs: neither the smallest nor the largest changes of a parameter."""

from typing import Any

import numpy as np
import pytest
import torch

from fusionlab.errors import InputError
from fusionlab.merging import merge_states
from tests.merging.near_base import changes_of, fine_tunes


@pytest.mark.parametrize(
    ("density", "gamma"),
    [(0.2, 0.1), (0.5, 0.0), (0.5, 0.5), (0.01, 0.3), (1.0, 0.0), ([0.5, 0.01, 0.7], 0.3), ([1.0, 0.1, 0.4], 0.0)],
)
@pytest.mark.parametrize("weights", [[1 / 3, 1 / 3, 1 / 3], [0.5, 0.2, 0.3]])
def test_equals_the_masks(density: float | list[float], gamma: float, weights: list[float]) -> None:
    """Entry by entry, by numpy's order of magnitudes."""
    base, states = fine_tunes(3)
    merged = merge_states(states, "breadcrumbs", weights, base=base, density=density, gamma=gamma, lambda_=0.9)
    shares = density if isinstance(density, list) else [density] * 3
    for name in base:
        expected = base[name].numpy().flatten()
        for weight, change, share in zip(weights, changes_of(base, states, name), shares, strict=True):
            flat = change.numpy().flatten()
            outliers = min(round(gamma * len(flat)), len(flat) - max(1, round(share * len(flat))))
            kept = np.argsort(-np.abs(flat))[outliers:][: max(1, round(share * len(flat)))]
            expected[kept] += 0.9 * weight * flat[kept]
        np.testing.assert_allclose(merged[name].numpy().flatten(), expected, rtol=0, atol=1e-14)


def test_one_large_change_is_left_out() -> None:
    """An outlier that would be the first to be kept by TIES."""
    base = {"w": torch.zeros(10)}
    change = torch.tensor([9.0, 1, 2, 3, 0, 0, 0, 0, 0, 0])
    merged = merge_states([{"w": change}, {"w": change}], "breadcrumbs", base=base, density=0.2, gamma=0.1)["w"]
    assert merged.tolist() == [0, 0, 2, 3, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"density": 0.0}, "density is 0.0"),
        ({"density": 1.1}, "density is 1.1"),
        ({"gamma": -0.1}, "gamma is -0.1; expected a number from 0 to 1 - density"),
        ({"density": 0.7, "gamma": 0.4}, "gamma is 0.4; expected a number from 0 to 1 - density, which is 0.3"),
        (
            {"density": [0.2, 0.7], "gamma": 0.4},
            "gamma is 0.4; expected a number from 0 to 1 - the largest density, which is 0.3",
        ),
    ],
)
def test_fractions_out_of_range(given: dict[str, Any], words: str) -> None:
    """Refused by name."""
    base, states = fine_tunes(2)
    with pytest.raises(InputError, match=words):
        merge_states(states, "breadcrumbs", base=base, **given)
