"""KnOTS: TIES on what each model reads for outputs that all share."""

import numpy as np
import pytest
import torch

from fusionlab.merging import merge_states
from tests.merging.near_base import adapted, changes_of, fine_tunes, mean_change


def by_hand(changes: np.ndarray, weights: list[float], density: float | list[float]) -> np.ndarray:
    """The paper's algorithm for one matrix, entry by entry."""
    left, values, right = np.linalg.svd(np.concatenate(list(changes), axis=1), full_matrices=False)
    parts = np.stack(np.split(np.diag(values) @ right, len(changes), axis=1))
    merged = np.zeros(parts.shape[1:])
    shares = density if isinstance(density, list) else [density] * len(parts)
    kept = [max(1, round(share * merged.size)) for share in shares]
    least = [np.sort(np.abs(part).ravel())[-number] for part, number in zip(parts, kept, strict=True)]
    for place in np.ndindex(*merged.shape):
        entries = [
            (weight, part[place])
            for weight, part, smallest in zip(weights, parts, least, strict=True)
            if abs(part[place]) >= smallest
        ]
        sign = np.sign(sum(weight * entry for weight, entry in entries))
        agreeing = [(weight, entry) for weight, entry in entries if np.sign(entry) == sign != 0]
        if agreeing:
            merged[place] = sum(w * e for w, e in agreeing) / sum(w for w, _ in agreeing)
    return left @ merged


@pytest.mark.parametrize("density", [0.2, 0.7, 1.0, [0.7, 1.0, 0.2]])
@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [0.5, 0.3, 0.2]])
def test_equals_the_algorithm(weights: list[float], density: float | list[float]) -> None:
    """For any weights and density; a convolution is a matrix too, everything else is averaged."""
    base, states = fine_tunes(3)
    merged = merge_states(states, "knots", weights, base=base, density=density, lambda_=0.6)
    shares = [weight / sum(weights) for weight in weights]
    for name in ("tall", "wide", "kernel"):
        changes = changes_of(base, states, name).flatten(2).numpy()
        expected = torch.from_numpy(0.6 * by_hand(changes, shares, density)).reshape(base[name].shape)
        torch.testing.assert_close(merged[name] - base[name], expected, rtol=0, atol=1e-12)
    if weights[0] == 1:
        torch.testing.assert_close(merged["bias"], 0.4 * base["bias"] + 0.6 * mean_change(base, states, "bias"))


def test_a_density_stays_with_its_model() -> None:
    """Also behind one that has no weight and takes no part."""
    base, states = fine_tunes(3)
    merged = merge_states(states, "knots", [0, 1, 2], base=base, density=[0.9, 0.3, 0.6])
    for name, tensor in merge_states(states[1:], "knots", [1, 2], base=base, density=[0.3, 0.6]).items():
        torch.testing.assert_close(merged[name], tensor, rtol=0, atol=1e-12)


def test_adapters_that_share_no_direction() -> None:
    """Of each entry at most one model has a say, so that nothing cancels: the outputs are those of both."""
    left, right = torch.eye(6, dtype=torch.float64), torch.eye(4, dtype=torch.float64)
    changes = [3 * torch.outer(left[0], right[1]), 2 * torch.outer(left[1], right[3])]
    base = {"w": torch.zeros(6, 4, dtype=torch.float64)}
    merged = merge_states([{"w": change} for change in changes], "knots", base=base, density=1.0)["w"]
    torch.testing.assert_close(merged, changes[0] + changes[1], rtol=0, atol=1e-14)


def test_the_rank_is_at_most_that_of_all_together() -> None:
    """Of adapters of rank 1 and 2, with the rounding of bfloat16: no direction that none of them has."""
    base, _ = fine_tunes(1, dtype=torch.bfloat16)
    states = adapted(base, [1, 2])
    merged = merge_states(states, "knots", base=base, density=1.0)
    changes = torch.cat(list(changes_of(base, states, "tall").double()), 1)
    outputs = torch.linalg.svd(changes, full_matrices=False)[0][:, :3]
    added = (merged["tall"].double() - base["tall"].double()).double()
    assert (added - outputs @ outputs.mT @ added).norm() < 0.05 * added.norm()


def test_models_that_are_the_base() -> None:
    """Nothing is added."""
    base, _ = fine_tunes(1)
    merged = merge_states([base, base], "knots", base=base)
    assert all(torch.equal(merged[name], base[name]) for name in base)
