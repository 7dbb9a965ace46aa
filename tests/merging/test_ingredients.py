"""Ingredients: what a method may look at, and how models are called."""

import torch

from fusionlab.merging.ingredients import Ingredients


def test_models_keep_their_names() -> None:
    """Also where those without a weight are left out; without names they go by their places among all."""
    states = [{"w": torch.ones(1)}] * 3
    named = Ingredients(states, [0.5, 0, 0.5], None, (), None, None, 0, names=["a", "b", "c"])
    assert [named.called(index) for index in range(3)] == ["a", "b", "c"]
    assert [named.present().called(index) for index in range(2)] == ["a", "c"]
    unnamed = Ingredients(states, [0.5, 0, 0.5], None, (), None, None, 0).present()
    assert [unnamed.called(index) for index in range(2)] == ["model 0", "model 2"]
