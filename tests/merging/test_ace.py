"""ACE: RegMean with covariances that the task vectors stand for."""

import numpy as np
import pytest
import torch

from fusionlab.errors import InputError
from fusionlab.merging import find_method, merge_states
from tests.merging.near_base import State, changes_of, fine_tunes, mean_change


def by_hand(changes: np.ndarray, weights: list[float], epsilon: float, rank: float) -> np.ndarray:
    """The published steps for one matrix, by numpy and explicit inverses."""
    sizes = np.array([np.trace(change.T @ change) for change in changes])
    uneven = np.var(np.log(sizes), ddof=1) / np.mean(np.log(sizes)) ** 2 > 0.3
    identity = np.eye(changes.shape[2])
    covariances, regular, centred = [], [], []
    for change in changes:
        own = change - change.mean(axis=0)
        size = np.trace(own.T @ own) if uneven else 1.0
        covariances.append(own.T @ own / size)
        regular.append(covariances[-1] + epsilon / size * identity)
        centred.append(own)
    prior = sum(w * c for w, c in zip(weights, covariances, strict=True)).mean(axis=0)
    prior = prior / (sizes.mean() if uneven else 1.0)
    total = sum(w * c for w, c in zip(weights, regular, strict=True))
    wanted = sum(w * own @ c for w, own, c in zip(weights, centred, regular, strict=True))
    merged = wanted @ np.linalg.inv(total + np.ones((len(prior), 1)) @ prior[None])
    if uneven:
        rest = sum(
            w * change @ (c - total / sum(weights)) for w, change, c in zip(weights, changes, covariances, strict=True)
        )
        left, values, right = np.linalg.svd(rest + merged, full_matrices=False)
        kept = max(1, int(rank * len(values)))
        merged = merged + values[:kept].mean() * left[:, :kept] @ right[:kept]
    return merged


def problem(is_uneven: bool) -> tuple[State, list[State]]:
    """Fine-tunes that moved alike, or one of which moved much further."""
    base, states = fine_tunes(3)
    if is_uneven:
        states[2] = {name: base[name] + 30 * (states[2][name] - base[name]) for name in base}
    return base, states


@pytest.mark.parametrize("is_uneven", [False, True])
@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [0.5, 0.3, 0.2]])
def test_equals_the_published_steps(weights: list[float], is_uneven: bool) -> None:
    """For task vectors of like and of unlike sizes, and any weights."""
    base, states = problem(is_uneven)
    merged = merge_states(states, "ace", weights, base=base, epsilon=0.02, rank=0.5, lambda_=0.7)
    factors = [3 * weight / sum(weights) for weight in weights]
    for name in ("tall", "wide"):
        expected = 0.7 * by_hand(changes_of(base, states, name).numpy(), factors, 0.02, 0.5)
        torch.testing.assert_close(merged[name] - base[name], torch.from_numpy(expected), rtol=0, atol=1e-10)
    if weights[0] == 1:
        torch.testing.assert_close(merged["bias"], 0.3 * base["bias"] + 0.7 * mean_change(base, states, "bias"))


def test_a_model_that_is_the_base_says_nothing() -> None:
    """It adds no covariance, and all of them add nothing."""
    base, states = fine_tunes(2)
    with_base = merge_states([*states, base], "ace", base=base)
    alone = merge_states(states, "ace", base=base)
    torch.testing.assert_close(with_base["tall"], alone["tall"], rtol=0, atol=1e-10)
    nothing = merge_states([base, base], "ace", base=base)
    assert all(torch.equal(nothing[name], base[name]) for name in base)


def test_numbers_out_of_range() -> None:
    """Refused before any work."""
    for given, words in (({"epsilon": 0.0}, "epsilon is 0.0"), ({"rank": 1.5}, "rank is 1.5")):
        with pytest.raises(InputError, match=f"{words}; expected"):
            find_method("ace").check([0.5, 0.5], given)
