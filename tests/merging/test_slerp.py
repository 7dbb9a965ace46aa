"""Spherical linear interpolation of two models, parameter by parameter."""

import math

import pytest
import torch

from fusionlab.errors import InputError
from fusionlab.merging import merge_states
from tests.merging.random_states import random_states


def angle(a: torch.Tensor, b: torch.Tensor) -> float:
    """Between unit tensors, from chords: small ones are told as well as large ones."""
    return 2 * math.atan2(float((a - b).norm()), float((a + b).norm()))


@pytest.mark.parametrize("t", [0.0, 0.25, 0.5, 1.0])
def test_on_the_arc(t: float) -> None:
    """Unit tensors stay of length one, at angles t and 1 - t of the whole from the two ends."""
    states = [{n: x / x.norm() for n, x in s.items() if x.ndim} for s in random_states(2)]
    merged = merge_states(states, "slerp", t=t)
    for name, tensor in merged.items():
        a, b = states[0][name], states[1][name]
        assert float(tensor.norm()) == pytest.approx(1, abs=1e-12)
        assert angle(tensor, a) == pytest.approx(t * angle(a, b), abs=1e-12)


def test_ends_and_weights() -> None:
    """The ends are the models, and without t the second model's weight says where."""
    states = random_states(2)
    for t, end in ((0.0, 0), (1.0, 1)):
        for name, tensor in merge_states(states, "slerp", t=t).items():
            torch.testing.assert_close(tensor, states[end][name], rtol=0, atol=1e-14)
    weighted, placed = merge_states(states, "slerp", [1, 3]), merge_states(states, "slerp", t=0.75)
    assert all(torch.equal(weighted[name], placed[name]) for name in placed)


def test_right_angle_by_hand() -> None:
    """Half way between orthogonal tensors of lengths 1 and 3 both count by 1 / sqrt 2."""
    states = [{"w": torch.tensor([1.0, 0.0])}, {"w": torch.tensor([0.0, 3.0])}]
    merged = merge_states(states, "slerp")["w"]
    torch.testing.assert_close(merged, torch.tensor([1.0, 3.0]) / math.sqrt(2))


@pytest.mark.parametrize("factor", [1.0, 2.0, -1.0, 0.0])
def test_parallel_tensors_are_interpolated_linearly(factor: float) -> None:
    """Equal, longer, opposite and zero ones: no angle to divide by."""
    w = random_states(1)[0]["w"]
    merged = merge_states([{"w": w}, {"w": factor * w}], "slerp", t=0.25)["w"]
    torch.testing.assert_close(merged, (0.75 + 0.25 * factor) * w, rtol=0, atol=1e-14)


def test_bad_input() -> None:
    """Two models, and t between them."""
    with pytest.raises(InputError, match="slerp was given 3 models; expected exactly two"):
        merge_states(random_states(3), "slerp")
    with pytest.raises(InputError, match=r"t is 1\.5"):
        merge_states(random_states(2), "slerp", t=1.5)
