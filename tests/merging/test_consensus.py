"""Consensus: entries that matter to enough of the tasks."""

from typing import Any

import numpy as np
import pytest
import torch

from fusionlab.errors import InputError
from fusionlab.merging import merge_states
from tests.merging.near_base import changes_of, fine_tunes


@pytest.mark.parametrize("k", [0, 1, 2, 3])
@pytest.mark.parametrize("weights", [[1 / 3, 1 / 3, 1 / 3], [0.5, 0.2, 0.3]])
def test_consensus_task_arithmetic(k: int, weights: list[float]) -> None:
    """The sum of the task vectors where k masks or more are true, by numpy."""
    base, states = fine_tunes(3)
    merged = merge_states(states, "consensus", weights, base=base, k=k, threshold=0.5, lambda_=0.9)
    for name in base:
        changes = changes_of(base, states, name).numpy()
        added = np.tensordot(weights, changes, axes=1)
        needed = sum(np.abs(change) >= 0.5 * np.abs(3 * added - change) for change in changes)
        expected = base[name].numpy() + 0.9 * np.where(needed >= k, added, 0)
        np.testing.assert_allclose(merged[name].numpy(), expected, rtol=0, atol=1e-14)


def test_nothing_removed_is_the_other_method() -> None:
    """k = 0: task arithmetic; and TIES, whose mean over those that agree is a sum here, divided by all."""
    base, states = fine_tunes(2)
    for name, tensor in merge_states(states, "task_arithmetic", base=base, lambda_=0.8).items():
        found = merge_states(states, "consensus", base=base, k=0, lambda_=0.8)[name]
        torch.testing.assert_close(found, tensor, rtol=0, atol=1e-14)
    base = {"w": torch.zeros(3)}
    models = [{"w": torch.tensor(row)} for row in ([1.0, 1.0, 1.0], [3.0, 1.0, -2.0], [-1.0, -9.0, 0.0])]
    merged = merge_states(models, "consensus", base=base, k=0, combination="ties", density=1.0)["w"]
    torch.testing.assert_close(merged, torch.tensor([4.0, -9.0, -2.0]) / 3)


@pytest.mark.parametrize(("density", "counts"), [(0.5, [36, 36, 36]), ([0.5, 0.25, 1.0], [36, 18, 72])])
def test_consensus_ties(density: float | list[float], counts: list[int]) -> None:
    """Trimmed, elected and summed by numpy; masks look at the task vectors before they are trimmed."""
    base, states = fine_tunes(3)
    base, states = {"tall": base["tall"]}, [{"tall": state["tall"]} for state in states]
    given: dict[str, Any] = {"combination": "ties", "density": density, "threshold": 0.3, "k": 2}
    changes = changes_of(base, states, "tall").numpy()
    kept = np.stack(
        [
            np.where(np.abs(c) >= np.sort(np.abs(c), axis=None)[-count], c, 0)
            for c, count in zip(changes, counts, strict=True)
        ]
    )
    agreeing = np.where(np.sign(kept) == np.sign(kept.sum(0)), kept, 0).sum(0)
    needed = sum(np.abs(change) >= 0.3 * np.abs(agreeing - change) for change in changes)
    expected = base["tall"].numpy() + np.where(needed >= 2, agreeing, 0) / 3
    merged = merge_states(states, "consensus", base=base, **given)["tall"]
    np.testing.assert_allclose(merged.numpy(), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("k", [1, 2])
def test_of_one_model_with_weight_all_is_kept(k: int) -> None:
    """There is no second task that could need an entry."""
    base, states = fine_tunes(2)
    for name, tensor in merge_states(states, "consensus", [0, 1], base=base, k=k).items():
        torch.testing.assert_close(tensor, states[1][name], rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"threshold": -0.1}, "threshold is -0.1"),
        ({"k": -1}, "k is -1"),
        ({"k": 3}, "k is 3; expected at most 2, as many tasks as there are models"),
        ({"k": 10**30}, "k is 10*; expected at most 2"),
        ({"density": 0.0, "combination": "ties"}, "density is 0.0"),
    ],
)
def test_numbers_out_of_range(given: dict[str, Any], words: str) -> None:
    """Refused by name."""
    base, states = fine_tunes(2)
    with pytest.raises(InputError, match=words):
        merge_states(states, "consensus", base=base, **given)
