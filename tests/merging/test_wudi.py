"""WUDI: least interference with what the task vectors say about each model's inputs."""

import pytest
import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.merging import merge_states
from tests.merging.near_base import changes_of, fine_tunes


def interference(merged: Tensor, changes: Tensor, weights: list[float]) -> Tensor:
    """The paper's loss, term by term."""
    terms = [
        weight * ((merged - change) @ change.mT).square().sum() / change.square().sum()
        for change, weight in zip(changes, weights, strict=True)
    ]
    return torch.stack(terms).sum()


@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [0.5, 0.3, 0.2]])
def test_exact_is_the_minimum(weights: list[float]) -> None:
    """The gradient of the paper's loss is zero there, and a step any way does not lower it."""
    base, states = fine_tunes(3)
    merged = merge_states(states, "wudi", weights, base=base, solver="exact")
    generator = torch.Generator().manual_seed(0)
    for name in ("tall", "wide"):
        changes = changes_of(base, states, name)
        found = (merged[name] - base[name]).requires_grad_()
        loss = interference(found, changes, weights)
        (gradient,) = torch.autograd.grad(loss, found)
        assert gradient.abs().max() < 1e-12
        for _ in range(5):
            step = 1e-3 * torch.randn(found.shape, generator=generator, dtype=torch.float64)
            assert interference(found + step, changes, weights) > loss


def test_descent_is_adams() -> None:
    """Torch's Adam on the paper's loss by automatic differentiation, from the sum of the task vectors."""
    base, states = fine_tunes(3)
    merged = merge_states(states, "wudi", base=base, steps=25, learning_rate=3e-3)
    for name in ("tall", "wide"):
        changes = changes_of(base, states, name)
        found = changes.sum(0).requires_grad_()
        optimizer = torch.optim.Adam([found], lr=3e-3)
        for _ in range(25):
            optimizer.zero_grad()
            interference(found, changes, [1.0] * 3).backward()
            optimizer.step()
        torch.testing.assert_close(merged[name] - base[name], found.detach(), rtol=0, atol=1e-12)


def test_no_steps_is_the_sum() -> None:
    """Where the descent starts."""
    base, states = fine_tunes(3)
    merged = merge_states(states, "wudi", base=base, steps=0)
    torch.testing.assert_close(merged["tall"], base["tall"] + changes_of(base, states, "tall").sum(0))


def test_many_steps_reach_the_minimum() -> None:
    """The two solvers solve one problem."""
    base, states = fine_tunes(2)
    base, states = {"w": base["tall"]}, [{"w": state["tall"]} for state in states]
    exact = merge_states(states, "wudi", base=base, solver="exact")["w"]
    descended = merge_states(states, "wudi", base=base, steps=3000, learning_rate=1e-3)["w"]
    torch.testing.assert_close(descended, exact, rtol=0, atol=1e-3)


def test_models_that_read_different_inputs_keep_their_task_vectors() -> None:
    """Task vectors on different columns: the minimum is their sum, no interference at all."""
    base = {"w": torch.zeros(4, 6, dtype=torch.float64)}
    changes = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    changes[0, :, 3:] = 0
    changes[1, :, :3] = 0
    merged = merge_states([{"w": change} for change in changes], "wudi", base=base, solver="exact")["w"]
    torch.testing.assert_close(merged, changes.sum(0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
@pytest.mark.parametrize("size", [1e-23, 1.0])
def test_sizes_whose_squares_are_no_numbers(size: float, shape: tuple[int, int]) -> None:
    """Both solvers in float32: the minimum is as large as the task vectors are, and steps of nothing stay finite."""
    changes = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    base = {"w": torch.zeros(shape)}
    found = {}
    for solver in ("exact", "descent"):
        states = [{"w": size * change} for change in changes]
        merged = merge_states(states, "wudi", base=base, solver=solver, learning_rate=1e-30)
        found[solver] = merged["w"] / size
    torch.testing.assert_close(found["descent"], changes.sum(0), rtol=1e-5, atol=1e-5)
    exact = merge_states([{"w": change} for change in changes], "wudi", base=base, solver="exact")["w"]
    torch.testing.assert_close(found["exact"], exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"steps": -1}, "steps is -1"),
        ({"learning_rate": 0.0}, "learning_rate is"),
        ({"learning_rate": 1e300}, r"learning_rate is 1e\+300; expected a number above 0, at most 1"),
    ],
)
def test_bad_values(given: dict[str, float], words: str) -> None:
    """Refused by name."""
    base, states = fine_tunes(2)
    with pytest.raises(InputError, match=words):
        merge_states(states, "wudi", base=base, **given)
