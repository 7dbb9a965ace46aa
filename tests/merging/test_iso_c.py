"""Iso-C: the sum of the task vectors with all singular values alike."""

import numpy as np
import pytest
import torch

from fusionlab.merging import merge_states
from tests.merging.near_base import changes_of, fine_tunes


@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [0.6, 0.3, 0.1]])
def test_equals_the_formula(weights: list[float]) -> None:
    """By numpy, for any weights."""
    base, states = fine_tunes(3)
    merged = merge_states(states, "iso_c", weights, base=base, lambda_=0.6)
    for name in ("tall", "wide"):
        changes = changes_of(base, states, name).numpy()
        total = sum(3 * w / sum(weights) * change for w, change in zip(weights, changes, strict=True))
        left, values, right = np.linalg.svd(total, full_matrices=False)
        expected = base[name].numpy() + 0.6 * values.mean() * left @ right
        np.testing.assert_allclose(merged[name].numpy(), expected, rtol=0, atol=1e-13)


def test_the_nuclear_norm_stays() -> None:
    """Singular values are made alike, and their sum is that of the task vectors' sum."""
    base, states = fine_tunes(4)
    merged = merge_states(states, "iso_c", base=base)
    values = torch.linalg.svdvals(merged["wide"] - base["wide"])
    total = torch.linalg.svdvals(changes_of(base, states, "wide").sum(0))
    torch.testing.assert_close(values, total.mean().expand(5), rtol=0, atol=1e-13)


def test_no_directions_are_invented() -> None:
    """Where the sum has not full rank, as of adapters: only its own directions, with the mean over those."""
    base, _ = fine_tunes(1)
    generator = torch.Generator().manual_seed(3)
    change = torch.randn(12, 2, generator=generator, dtype=torch.float64) @ torch.randn(
        2, 6, generator=generator, dtype=torch.float64
    )
    states = [base | {"tall": base["tall"] + share * change} for share in (0.25, 0.75)]
    added = merge_states(states, "iso_c", base=base)["tall"] - base["tall"]
    values = torch.linalg.svdvals(added)
    expected = torch.linalg.svdvals(change)[:2].mean()
    torch.testing.assert_close(values[:2], expected.expand(2), rtol=0, atol=1e-12)
    assert values[2:].max() < 1e-12
