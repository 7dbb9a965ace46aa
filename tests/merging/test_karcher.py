"""The Karcher mean of directions on the sphere, and the mean length."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from fusionlab.errors import InputError
from fusionlab.merging import merge_states
from fusionlab.merging.karcher import spanning_basis
from tests.merging.random_states import State, random_states
from tests.symmetry.models import generator, laws


def unit(states: list[State], name: str) -> torch.Tensor:
    stacked = torch.stack([state[name].flatten() for state in states])
    return stacked / stacked.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [1.0, 2.0, 5.0]])
def test_minimises_the_squared_angles(weights: list[float]) -> None:
    """A general minimiser finds the same direction; the length is the weighted mean of lengths."""
    states = random_states(3)
    merged = merge_states(states, "karcher", weights, iterations=200, tol=1e-13)
    shares = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    for name in ("w", "b"):
        directions = unit(states, name)

        def objective(x: object, directions: torch.Tensor = directions) -> float:
            point = torch.as_tensor(x, dtype=torch.float64)
            return float((shares * torch.acos((directions @ point / point.norm()).clamp(-1, 1)).square()).sum())

        direction = merged[name].flatten() / merged[name].norm()
        found = minimize(objective, directions.mean(0).numpy(), options={"gtol": 1e-9})
        assert objective(direction) <= found.fun + 1e-10
        expected = torch.as_tensor(found.x) / torch.as_tensor(found.x).norm()
        torch.testing.assert_close(direction, expected, rtol=0, atol=1e-4)
        lengths = torch.stack([state[name].norm() for state in states])
        assert float(merged[name].norm()) == pytest.approx(float(shares @ lengths), abs=1e-12)


def test_of_two_is_slerp() -> None:
    """Of two unit tensors, at the second one's weight."""
    states = [{n: x / x.norm() for n, x in s.items() if x.ndim} for s in random_states(2)]
    merged = merge_states(states, "karcher", [1, 3], iterations=100, tol=1e-14)
    for name, tensor in merge_states(states, "slerp", [1, 3]).items():
        torch.testing.assert_close(merged[name], tensor, rtol=0, atol=1e-12)


def test_zeros() -> None:
    """A zero tensor has no direction and shortens the mean; of nothing else there is nothing to average."""
    w = random_states(1)[0]["w"]
    zero = torch.zeros_like(w)
    torch.testing.assert_close(merge_states([{"w": w}, {"w": zero}], "karcher")["w"], w / 2)
    assert not merge_states([{"w": zero}, {"w": zero}], "karcher")["w"].any()


def angles(merged: torch.Tensor, tensors: list[torch.Tensor]) -> torch.Tensor:
    """Between the merged tensor and each, from chords, so that right angles and small ones are told to rounding."""
    directions = torch.stack([tensor.flatten() / tensor.norm() for tensor in tensors])
    direction = merged.flatten() / merged.norm()
    return 2 * torch.atan2((directions - direction).norm(dim=1), (directions + direction).norm(dim=1))


def least(directions: np.ndarray, weights: np.ndarray) -> float:
    """The least weighted sum of squared angles that a general minimiser finds from many starts."""

    def objective(x: np.ndarray) -> float:
        point = x / np.linalg.norm(x)
        chords = np.linalg.norm(directions - point, axis=1), np.linalg.norm(directions + point, axis=1)
        return float(weights @ (2 * np.arctan2(*chords)) ** 2)

    if directions.shape[1] == 1:
        return min(objective(np.array([sign])) for sign in (1.0, -1.0))
    draw = np.random.default_rng(0)
    starts = np.concatenate((draw.standard_normal((24, directions.shape[1])), directions + 1e-3))
    return min(minimize(objective, start).fun for start in starts)


@settings(laws, max_examples=40)
@given(
    count=st.integers(2, 5),
    size=st.integers(1, 4),
    opposite=st.sampled_from([None, 0.0, 1e-8, 1e-2]),
    zero=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_no_direction_has_smaller_angles(count: int, size: int, opposite: float | None, zero: bool, seed: int) -> None:
    """Of models drawn at random, also all over the sphere, two of them opposite or nearly so, one of them zero.

    The length is the weighted mean of lengths whatever the directions are.
    """
    draw = generator(seed)
    tensors = [torch.randn(size, generator=draw, dtype=torch.float64) for _ in range(count)]
    weights = torch.rand(count, generator=draw, dtype=torch.float64) + 0.05
    if opposite is not None:
        tensors[1] = -1.5 * (tensors[0] + opposite * torch.randn(size, generator=draw, dtype=torch.float64))
    if zero and count > 2:
        tensors[2] = torch.zeros_like(tensors[2])
    weights /= weights.sum()
    states = [{"w": tensor} for tensor in tensors]
    merged = merge_states(states, "karcher", weights.tolist(), iterations=300, tol=1e-13)["w"]
    lengths = torch.stack([tensor.norm() for tensor in tensors])
    assert float(merged.norm()) == pytest.approx(float(weights @ lengths), rel=1e-13)
    kept = [index for index in range(count) if lengths[index] > 0]
    shares = weights[kept] / weights[kept].sum()
    reached = float(shares @ angles(merged, [tensors[index] for index in kept]).square())
    directions = torch.stack([tensors[index] / lengths[index] for index in kept])
    assert reached <= least(directions.numpy(), shares.numpy()) + 1e-6


@pytest.mark.parametrize("weights", [[1.0, 1.0], [0.3, 0.7], [0.9, 0.1]])
@pytest.mark.parametrize("shape", [(2,), (7, 5)])
def test_opposite_tensors(shape: tuple[int, ...], weights: list[float]) -> None:
    """The mean is on a half circle between them, further from the one that weighs less; its length stays."""
    for seed in range(20):
        w = torch.randn(shape, generator=generator(seed), dtype=torch.float64)
        merged = merge_states([{"w": w}, {"w": -w}], "karcher", weights)["w"]
        share = weights[1] / sum(weights)
        expected = torch.tensor([share, 1 - share], dtype=torch.float64) * math.pi
        torch.testing.assert_close(angles(merged, [w, -w]), expected, rtol=0, atol=1e-9)
        assert float(merged.norm()) == pytest.approx(float(w.norm()), rel=1e-13)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_nearly_opposite_tensors(dtype: torch.dtype) -> None:
    """A hundred millionth is enough to say on which side the mean lies."""
    for seed in range(20):
        draw = generator(seed)
        first, side = torch.randn(2, 35, generator=draw, dtype=torch.float64)
        first /= first.norm()
        side -= (side @ first) * first
        side /= side.norm()
        turn = 1e-8 if dtype == torch.float64 else 1e-3
        second = -math.cos(turn) * first + math.sin(turn) * side
        merged = merge_states([{"w": first.to(dtype)}, {"w": second.to(dtype)}], "karcher")["w"].double()
        assert float(merged @ side) == pytest.approx(1, abs=1e-3)
        assert float(merged.norm()) == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize(
    ("numbers", "weights", "expected"),
    [
        ([1.0, 2.0, -3.0, 4.0, -5.0], [1, 1, 1, 1, 1], 3.0),
        ([1.0, 2.0, -3.0, 4.0, -5.0], [1, 1, 4, 1, 1], -3.0),
        ([-1.0, -2.0, 3.0, 4.0, 0.0], [1, 1, 1, 1, 1], -2.0),
        ([-1.0, 2.0, -3.0], [0, 1, 1], 2.5),
        # Equal but for the rounding of their sums, in one order of addition or another.
        ([1.0, 1.0, -1.0], [0.1, 0.2, 0.3], 1.0),
        ([1.0, -1.0, 1.0], [2, 3, 1], 1.0),
        ([-1.0, -1.0, 1.0, -1.0], [1, 1, 3, 1], -1.0),
    ],
)
def test_of_one_number_the_sign_is_elected(numbers: list[float], weights: list[float], expected: float) -> None:
    """By weight, a zero without a voice, and the first model's where weights are equal; the size is the mean size."""
    for shape in ((), (1,), (1, 1)):
        states = [{"w": torch.full(shape, number, dtype=torch.float64)} for number in numbers]
        merged = merge_states(states, "karcher", weights)["w"]
        assert merged.shape == shape
        assert merged.item() == pytest.approx(expected, rel=1e-14)


def test_the_basis_is_orthonormal() -> None:
    """Of vectors that are dependent, nearly so, more than there are dimensions; the coordinates give them back."""
    for seed, size in itertools.product(range(5), (1, 2, 3, 20)):
        draw = generator(seed)
        free = torch.randn(2, size, generator=draw, dtype=torch.float64)
        near = free.sum(0) + 1e-7 * torch.randn(size, generator=draw, dtype=torch.float64)
        vectors = torch.stack((free[0], -free[0], free[1], near, free[0] - free[1]))
        vectors /= vectors.norm(dim=1, keepdim=True)
        basis, coordinates = spanning_basis(vectors.clone())
        assert basis.shape == (min(5, size), size)
        identity = torch.eye(len(basis), dtype=torch.float64)
        torch.testing.assert_close(basis @ basis.mT, identity, rtol=0, atol=1e-13)
        torch.testing.assert_close(coordinates @ basis, vectors, rtol=0, atol=1e-13)


def test_bad_input() -> None:
    """At least one step."""
    with pytest.raises(InputError, match="iterations is 0"):
        merge_states(random_states(2), "karcher", iterations=0)
