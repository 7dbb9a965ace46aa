"""PCB: entries compete within their model and between models."""

import math

import numpy as np
import pytest
import torch

from fusionlab.errors import InputError
from fusionlab.merging import merge_states
from tests.merging.near_base import State, fine_tunes


def by_hand(base: State, states: list[State], weights: list[float], ratio: float, lambda_: float) -> np.ndarray:
    """The authors' steps over one flat vector, a number at a time."""
    flat = np.stack([np.concatenate([(s[n] - base[n]).numpy().flatten() for n in base]) for s in states])
    n, d = flat.shape
    total = sum(n * weight * row for weight, row in zip(weights, flat, strict=True))
    above, below = np.zeros(d), np.zeros(d)
    for weight, row in zip(weights, flat, strict=True):
        ordered = sorted(abs(row))
        lengths = np.clip(abs(row), ordered[int(d * 1e-4)], ordered[int(d * (1 - 1e-4) - 1)])
        scores = [
            math.exp(n * ((length - lengths.min()) / (lengths.max() - lengths.min())) ** 2) * math.tanh(value * both)
            for length, value, both in zip(lengths, row, total, strict=True)
        ]
        least = sorted(scores)[int(d * (1 - ratio))]
        share = [(max(score, least) - least) / (max(scores) - least) for score in scores]
        above += weight * np.array(share) * np.sign(row) * lengths
        below += weight * np.array(share)
    return lambda_ * above / np.maximum(below, 1e-12)


@pytest.mark.parametrize("ratio", [0.05, 0.3, 0.95])
@pytest.mark.parametrize("weights", [[1 / 3, 1 / 3, 1 / 3], [0.5, 0.2, 0.3]])
def test_equals_the_algorithm(ratio: float, weights: list[float]) -> None:
    """Over the whole model at once."""
    base, states = fine_tunes(3)
    merged = merge_states(states, "pcb", weights, base=base, ratio=ratio, lambda_=0.9)
    found = np.concatenate([(merged[name] - base[name]).numpy().flatten() for name in base])
    np.testing.assert_allclose(found, by_hand(base, states, weights, ratio, 0.9), rtol=0, atol=1e-13)


def test_order_of_models() -> None:
    """The models' order does not count."""
    base, states = fine_tunes(3)
    merged = merge_states(states[::-1], "pcb", base=base)
    for name, tensor in merge_states(states, "pcb", base=base).items():
        torch.testing.assert_close(merged[name], tensor, rtol=0, atol=1e-13)


def test_nothing_changed() -> None:
    """Models that are the base model: it stays, without a division by zero."""
    base, _ = fine_tunes(1)
    base["empty"] = torch.zeros(0, 4)
    merged = merge_states([dict(base), dict(base)], "pcb", base=base)
    assert all(torch.equal(merged[name], tensor) for name, tensor in base.items())


def test_the_base_model_has_no_vote() -> None:
    """Where a model did not change anything, the others are not halved by it."""
    base, states = fine_tunes(1)
    alone = merge_states([*states, *states], "pcb", [1, 0], base=base)["tall"] - base["tall"]
    merged = merge_states([*states, dict(base)], "pcb", base=base)["tall"] - base["tall"]
    kept = (alone != 0) & (merged != 0)
    assert kept.any()
    # Magnitudes are the model's own; the sum of both models sets which entries count, not how far they are moved.
    torch.testing.assert_close(merged[kept], alone[kept], rtol=1e-9, atol=0)


def test_of_few_entries_the_largest_counts() -> None:
    """A twentieth of fifteen is less than one: one counts."""
    change = torch.linspace(0.1, 1.5, 15, dtype=torch.float64)
    base = {"w": torch.zeros(15, dtype=torch.float64)}
    merged = merge_states([{"w": change}, {"w": change}], "pcb", base=base, ratio=0.05)["w"]
    assert torch.count_nonzero(merged).item() == 1
    assert merged.argmax().item() == 14


def test_what_is_tied_or_measured_does_not_compete_again() -> None:
    """A second name and running statistics of any size: the other parameters are what they are without them."""
    base, states = fine_tunes(2)
    expected = merge_states(states, "pcb", base=base, ratio=0.3)
    counted = {"bn.running_mean": torch.zeros(50), "bn.num_batches_tracked": torch.tensor(3)}
    moved = [counted | {"bn.running_mean": torch.full((50,), 9.0 + place)} for place in range(2)]
    more = [state | {"twin": state["tall"]} | own for state, own in zip(states, moved, strict=True)]
    merged = merge_states(more, "pcb", base=base | {"twin": base["tall"]} | counted, ratio=0.3)
    for name, tensor in expected.items():
        torch.testing.assert_close(merged[name], tensor, rtol=0, atol=1e-12)
    torch.testing.assert_close(merged["twin"], expected["tall"], rtol=0, atol=1e-12)
    torch.testing.assert_close(merged["bn.running_mean"], torch.full((50,), 9.5))


@pytest.mark.parametrize("ratio", [0.0, 1.5])
def test_ratio_out_of_range(ratio: float) -> None:
    """Refused by name."""
    base, states = fine_tunes(2)
    with pytest.raises(InputError, match="ratio is"):
        merge_states(states, "pcb", base=base, ratio=ratio)
