"""DELLA: drop at random, small changes more often than large ones."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.merging import merge_states
from fusionlab.merging.della import keeping
from tests.merging.near_base import fine_tunes


def test_probabilities_rise_with_the_rank_in_a_row() -> None:
    """By row of a matrix and of a convolution, over all of a vector; a row of one entry gets the density."""
    changes = torch.tensor([[[0.1, -3.0, 2.0], [5.0, 4.0, -6.0]]])
    expected = torch.tensor([[[0.3, 0.7, 0.5], [0.5, 0.3, 0.7]]])
    torch.testing.assert_close(keeping(changes, 0.5, 0.2), expected)
    torch.testing.assert_close(keeping(changes.reshape(1, 2, 3, 1, 1), 0.5, 0.2).flatten(2), expected)
    vector = torch.tensor([[3.0, -1.0, 2.0, 0.0, 9.0]])
    torch.testing.assert_close(keeping(vector, 0.5, 0.2), torch.tensor([[0.6, 0.4, 0.5, 0.3, 0.7]]))
    assert keeping(torch.ones(2, 4, 1), 0.5, 0.2).tolist() == [[[0.5]] * 4] * 2
    assert keeping(torch.ones(2), 0.5, 0.2).tolist() == [0.5, 0.5]
    assert keeping(torch.ones(2, 0), 0.5, 0.2).shape == (2, 0)


def test_the_mean_over_seeds_is_the_mean_of_the_models() -> None:
    """Rescaling by each entry's own probability keeps the expectation, which rescaling by one number would not."""
    base, states = fine_tunes(2)
    base, states = {"tall": base["tall"]}, [{"tall": state["tall"]} for state in states]
    given = {"density": 0.5, "epsilon": 0.3, "lambda_": 1.0, "combination": "linear"}
    merged = torch.stack([merge_states(states, "della", base=base, seed=s, **given)["tall"] for s in range(2000)])
    mean: Tensor = merge_states(states, "simple")["tall"]
    error = merged.std(0) / 2000**0.5
    assert ((merged.mean(0) - mean).abs() < 5 * error).all()


def test_one_model_is_kept_or_dropped_entry_by_entry() -> None:
    """With all weight on one model an entry is the base model's, or its change divided by its probability."""
    base, states = fine_tunes(2)
    merged = merge_states(states, "della", [1, 0], base=base, density=0.6, epsilon=0.2, lambda_=1.0, seed=3)
    for name in base:
        change = states[0][name] - base[name]
        scaled = change / keeping(change[None], 0.6, 0.2)[0]
        kept = (merged[name] - base[name] - scaled).abs() < 1e-12
        assert torch.where(kept, 0.0, merged[name] - base[name]).abs().max() < 1e-12


def test_each_model_may_have_a_density_of_its_own() -> None:
    """The sum of what is left of each by itself, with all the weight on it, and its own density."""
    base, states = fine_tunes(3)
    given: dict[str, Any] = {"base": base, "epsilon": 0.1, "lambda_": 1.0, "seed": 4, "combination": "linear"}
    shares, left = [0.9, 0.2, 0.6], []
    for place, share in enumerate(shares):
        alone = [float(index == place) for index in range(3)]
        left.append(merge_states(states, "della", alone, density=share, **given))
    expected = merge_states(left, "simple", [1, 2, 3])
    for name, tensor in merge_states(states, "della", [1, 2, 3], density=shares, **given).items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"density": 0.0}, "density is 0.0"),
        ({"density": [0.5, 0.05]}, r"epsilon is 0\.07; expected .* below density of model 1 \(0\.05\)"),
        ({"epsilon": -0.1}, "epsilon is -0.1"),
        ({"density": 0.3, "epsilon": 0.3}, r"epsilon is 0\.3; expected a number from 0 up, below density"),
        ({"density": 1.0}, r"epsilon is 0\.07; .* at most 1 - density \(0\)"),
    ],
)
def test_probabilities_out_of_range(given: dict[str, Any], words: str) -> None:
    """Refused by name."""
    base, states = fine_tunes(2)
    with pytest.raises(InputError, match=words):
        merge_states(states, "della", base=base, **given)
