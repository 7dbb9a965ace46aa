"""Ingredients: what a method may look at, and how models are called."""

import pytest
import torch

from fusionlab.merging import merge_states
from fusionlab.merging.ingredients import Ingredients
from tests.symmetry.models import generator

TASKS = ("task_arithmetic", "ties", "tsv_m")


def test_models_keep_their_names() -> None:
    """Also where those without a weight are left out; without names they go by their places among all."""
    states = [{"w": torch.ones(1)}] * 3
    named = Ingredients(states, [0.5, 0, 0.5], None, (), None, None, 0, names=["a", "b", "c"])
    assert [named.called(index) for index in range(3)] == ["a", "b", "c"]
    assert [named.present().called(index) for index in range(2)] == ["a", "c"]
    unnamed = Ingredients(states, [0.5, 0, 0.5], None, (), None, None, 0).present()
    assert [unnamed.called(index) for index in range(2)] == ["model 0", "model 2"]


@pytest.mark.parametrize("method", ["simple", "task_arithmetic", "ties", "tsv_m", "slerp", "karcher"])
def test_a_mask_that_all_models_share_stays(method: str) -> None:
    """Differences of infinities are no numbers, nor is a share of none of one."""
    mask = torch.full((4, 4), -torch.inf).triu(1)
    states = [{"w": torch.randn(4, 4, generator=generator(seed)), "mask": mask.clone()} for seed in range(3)]
    for weights in ([1.0, 1.0], [1.0, 0.0]):
        merged = merge_states(states[:2], method, weights, base=states[2] if method in TASKS else None)
        assert torch.equal(merged["mask"], mask)
        assert merged["w"].isfinite().all()
