"""The greedy soup: what the score says is kept."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.merging import merge_states
from fusionlab.types import State


def numbers(*values: float) -> list[dict[str, Tensor]]:
    return [{"w": torch.tensor([value], dtype=torch.float64)} for value in values]


def near(target: float, asked: list[float] | None = None) -> Callable[[State], float]:
    """A score that falls with the distance to a number, and notes what it was asked for."""

    def score(state: State) -> float:
        value = float(state["w"])
        if asked is not None:
            asked.append(value)
        return -abs(value - target)

    return score


def test_greedy_by_hand() -> None:
    """Models at 1, 4, 9 and 2 with the target 2.4: 2 first, 1 makes it worse, 4 (to 3) too, 9 as well."""
    asked: list[float] = []
    merged = merge_states(numbers(1, 4, 9, 2), "soup", score=near(2.4, asked))
    assert merged["w"].item() == 2
    assert asked == [1, 4, 9, 2, 1.5, 3, 5.5]


def test_kept_models_are_averaged() -> None:
    """With the target 2.6: 2, then 4 (to 3), then 1 (to 7/3) come nearer, and 9 does not."""
    merged = merge_states(numbers(1, 4, 9, 2), "soup", score=near(2.6))
    assert merged["w"].item() == pytest.approx(7 / 3)


def test_equal_score_is_kept() -> None:
    """A score that does not fall is enough; then all models are averaged, by weight."""
    merged = merge_states(numbers(1, 4, 9), "soup", [1, 1, 2], score=lambda state: 0.0)
    assert merged["w"].item() == pytest.approx(23 / 4)


def test_never_worse_than_the_best_model() -> None:
    """Whatever the score is."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        states = [{"w": torch.randn(5, generator=generator)} for _ in range(5)]
        direction = torch.randn(5, generator=generator)

        def score(state: State, direction: Tensor = direction) -> float:
            return float(torch.sin(3 * state["w"] @ direction))

        merged = merge_states(states, "soup", score=score)
        assert score(merged) >= max(map(score, states))


def test_weight_zero_is_never_tried() -> None:
    """And the types are the first model's, whichever is kept."""
    states = [{"w": torch.tensor([5.0], dtype=torch.bfloat16)}, *numbers(1, 2)]
    merged = merge_states(states, "soup", [1, 1, 0], score=near(1))
    assert merged["w"].item() == 1
    assert merged["w"].dtype == torch.bfloat16


@pytest.mark.parametrize("broken", [float("nan"), float("-inf")])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_model_that_has_diverged_is_left_out(place: int, broken: float) -> None:
    """Wherever it is listed, it is neither returned nor part of a mean; the others are averaged as without it."""
    states = numbers(1, 4, 2)
    states.insert(place, {"w": torch.full((1,), 3.0, dtype=torch.float64)})
    asked = near(2.6)
    merged = merge_states(states, "soup", score=lambda state: broken if float(state["w"]) == 3 else asked(state))
    # 2, then 4 gives 3, whose score is broken, then 1 is further away.
    assert merged["w"].item() == 2
    merged = merge_states(states, "soup", score=lambda state: broken if state["w"] is states[place]["w"] else 0.0)
    assert merged["w"].item() == pytest.approx(7 / 3)


def test_models_that_have_all_diverged_are_refused() -> None:
    """There is no best of them to start from."""
    scores = iter((float("nan"), float("-inf")))
    with pytest.raises(
        InputError, match="no model to start from: the scores of all models are nan, -inf; expected one"
    ):
        merge_states(numbers(1, 2), "soup", score=lambda state: next(scores))


def test_the_score_to_reach_rises_with_the_mean() -> None:
    """After a model has been taken the mean's score counts: one better than the best model's alone is not enough."""
    reached = {1.0: 5.0, 2.0: 4.0, 9.0: 3.0, 1.5: 7.0, 4.0: 6.0}
    merged = merge_states(numbers(1, 2, 9), "soup", score=lambda state: reached[float(state["w"])])
    assert merged["w"].item() == 1.5


def test_score_is_needed() -> None:
    """There is nothing to be greedy by without one."""
    with pytest.raises(InputError, match="needs a validation set"):
        merge_states(numbers(1, 2), "soup")


def told(states: list[dict[str, Tensor]], score: Callable[[State], float], **given: Any) -> list[str]:
    """All that the soup tells."""
    found: list[str] = []
    merge_states(states, "soup", score=score, tell=found.append, **given)
    return found


def test_it_tells_which_models_it_kept() -> None:
    """In the order in which it took them, by their names, with the scores of their mean and of the best alone."""
    names = ["one", "four", "nine", "two"]
    assert told(numbers(1, 4, 9, 2), near(2.6), names=names) == [
        "Kept two, four and one of 4 models, left out nine; their mean has the score -0.2667 on validation data, two "
        "alone has -0.6."
    ]
    assert told(numbers(1, 4, 9, 2), near(2.4)) == [
        "Kept model 3 of 4 models, left out model 0, model 1 and model 2; model 3 alone has -0.4 on validation data, "
        "and no mean with another has as much."
    ]
    assert told(numbers(1, 4), lambda state: 0.5) == [
        "Kept model 0 and model 1 of 2 models; their mean has the score 0.5 on validation data, model 0 alone has 0.5."
    ]


def test_it_tells_why_a_model_was_never_tried() -> None:
    """One has no weight, and one has diverged."""
    (sentence,) = told(
        numbers(1, 4, 9), lambda state: float("nan") if float(state["w"]) == 9 else 1.0, weights=[1, 0, 1]
    )
    assert sentence.startswith("Kept model 0 of 3 models, left out model 1 (weight 0) and model 2 (diverged); model 0")
