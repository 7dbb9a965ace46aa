"""The Karcher mean of directions on the sphere, and the mean length."""

import pytest
import torch
from scipy.optimize import minimize

from fusionlab.errors import InputError
from fusionlab.merging import merge_states
from tests.merging.random_states import State, random_states


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


def test_zeros_and_opposites() -> None:
    """A zero tensor has no direction and shortens the mean; opposite ones have no mean and give no NaN."""
    w = random_states(1)[0]["w"]
    zero = torch.zeros_like(w)
    torch.testing.assert_close(merge_states([{"w": w}, {"w": zero}], "karcher")["w"], w / 2)
    assert torch.equal(merge_states([{"w": zero}, {"w": zero}], "karcher")["w"], zero)
    assert torch.isfinite(merge_states([{"w": w}, {"w": -w}], "karcher")["w"]).all()


def test_bad_input() -> None:
    """At least one step."""
    with pytest.raises(InputError, match="iterations is 0"):
        merge_states(random_states(2), "karcher", iterations=0)
