"""TIES: trim, elect sign, disjoint mean."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from fusionlab.errors import InputError
from fusionlab.merging import merge_states
from tests.merging.random_states import State, random_states
from tests.symmetry.models import generator

Density = float | list[float]


def by_hand(base: State, states: list[State], weights: list[float], density: Density, lambda_: float) -> State:
    """The paper's algorithm 1, one entry at a time, over one flat vector."""
    names = list(base)
    flat_base = torch.cat([base[n].flatten() for n in names]).numpy()
    changes = [torch.cat([s[n].flatten() for n in names]).numpy() - flat_base for s in states]
    shares = density if isinstance(density, list) else [density] * len(changes)
    for change, share in zip(changes, shares, strict=True):
        change[np.argsort(-np.abs(change))[max(1, round(share * len(flat_base))) :]] = 0
    merged = flat_base.copy()
    for entry in range(len(merged)):
        column = [change[entry] for change in changes]
        sign = np.sign(sum(w * c for w, c in zip(weights, column, strict=True)))
        agreeing = [(w, c) for w, c in zip(weights, column, strict=True) if c != 0 and np.sign(c) == sign]
        if agreeing:
            merged[entry] += lambda_ * sum(w * c for w, c in agreeing) / sum(w for w, _ in agreeing)
    parts = torch.from_numpy(merged).split([base[n].numel() for n in names])
    return {name: part.reshape(base[name].shape) for name, part in zip(names, parts, strict=True)}


@pytest.mark.parametrize("density", [0.05, 0.2, 0.7, 1.0, [0.7, 0.05, 0.2], [1.0, 0.3, 1.0], [1.0, 1.0, 1.0]])
@pytest.mark.parametrize("weights", [[1 / 3, 1 / 3, 1 / 3], [0.5, 0.2, 0.3]])
def test_equals_the_algorithm(density: Density, weights: list[float]) -> None:
    """Entry by entry in plain Python."""
    base, *states = random_states(4)
    merged = merge_states(states, "ties", weights, base=base, density=density, lambda_=0.7)
    expected = by_hand(base, states, weights, density, 0.7)
    for name, tensor in merged.items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-14)


def test_trimming_looks_at_the_whole_model() -> None:
    """A parameter that hardly changed is trimmed away, one that changed a lot is kept whole."""
    base, first, second = random_states(3)
    for state in (first, second):
        state["scale"] = base["scale"]
        state["b"] = base["b"] + 1e-6 * (state["b"] - base["b"])
        state["w"] = base["w"] + 10 * (state["w"] - base["w"])
    merged = merge_states([first, second], "ties", base=base, density=48 / 57)
    assert torch.equal(merged["b"], base["b"])
    full = merge_states([first, second], "ties", base=base, density=1.0)
    assert torch.equal(merged["w"], full["w"])


@pytest.mark.parametrize("count", [1, 7, 100, 1000])
def test_the_number_of_entries_is_rounded(count: int) -> None:
    """At every hundredth the nearest whole number of entries is kept, the largest, and at least one."""
    change = torch.randperm(count, generator=generator(count)).double() + 1
    base, moved, still = ({"w": tensor} for tensor in (torch.zeros(count), change, torch.zeros(count)))
    for hundredth in range(1, 101):
        merged = merge_states([moved, still], "ties", [1, 0], base=base, density=hundredth / 100)["w"]
        exact = Fraction(hundredth * count, 100)
        # Halves may go either way.
        assert abs(int((merged != 0).sum()) - max(exact, 1)) <= Fraction(1, 2)
        assert merged[merged != 0].sum() == change.sort().values[count - int((merged != 0).sum()) :].sum()


def test_agreeing_models_are_averaged_and_others_left_out() -> None:
    """Two against one: the one has no say where the sum of the two outweighs it."""
    base = {"w": torch.zeros(3)}
    states = [{"w": torch.tensor(row)} for row in ([1.0, 1.0, 1.0], [3.0, 1.0, -1.0], [-1.0, -9.0, 0.0])]
    merged = merge_states(states, "ties", base=base, density=1.0)["w"]
    assert merged.tolist() == pytest.approx([2.0, -9.0, 0.0], rel=1e-6, abs=0), "the last cancels exactly"


@pytest.mark.parametrize("density", [0.0, -1.0, 1.5, float("nan")])
def test_density_out_of_range(density: float) -> None:
    """Refused by name."""
    base, *states = random_states(3)
    with pytest.raises(InputError, match="density is"):
        merge_states(states, "ties", base=base, density=density)
