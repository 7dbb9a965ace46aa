"""Sorting changes no function, and brings to the front what brute force over all choices would keep."""

import itertools

import pytest
import torch

from fusionlab.growing.sorting import to_the_front
from fusionlab.matching.gauge import grams
from fusionlab.symmetry import Alignment, blueprint
from fusionlab.symmetry.groups import complement_of_ones
from tests.growing.test_growth import apart
from tests.symmetry.models import randomize

from .families import vit


def test_the_function_stays_and_singular_values_of_heads_come_first() -> None:
    """Of a product of query and key, cut to any width, no more is lost than the smallest singular values."""
    model = randomize(vit(), 0)
    folded = blueprint(model).after_folding
    assert folded is not None
    state = Alignment.identity(folded).apply(model).double().state_dict()
    sizes = {name: space.group.size // 2 for name, space in folded.spaces.items() if space.role != "residual"}
    found = to_the_front(state, folded, sizes).apply(state)
    twin = vit().double()
    twin.load_state_dict(found)
    assert apart(twin, model) < 1e-9

    # Of each head: a product of query with bias and key with bias.
    def joined(part: str) -> torch.Tensor:
        weight, bias = (found[f"vit.layers.0.attention.{part}_proj.{kind}"] for kind in ("weight", "bias"))
        return torch.cat([weight, bias[:, None]], 1).unflatten(0, (2, 6))

    query, key = joined("q"), joined("k")
    whole, cut = query.mT @ key, query[:, :3].mT @ key[:, :3]
    torch.testing.assert_close(
        (whole - cut).square().sum((1, 2)), torch.linalg.svdvals(whole)[:, 3:].square().sum(1), rtol=1e-6, atol=1e-9
    )


def test_a_stream_keeps_the_subspace_in_which_most_is_written() -> None:
    model = randomize(vit(hidden_size=6, num_attention_heads=1, num_hidden_layers=1), 1)
    folded = blueprint(model).after_folding
    assert folded is not None
    state = Alignment.identity(folded).apply(model).double().state_dict()
    (stream,) = (name for name, space in folded.spaces.items() if space.group.size == 6 and space.role == "residual")
    found = to_the_front(state, folded, {stream: 4}).apply(state)
    written, _ = grams(state, folded, folded.spaces[stream])
    left, _ = grams(found, folded, folded.spaces[stream])
    inside = complement_of_ones(4)
    # Three of the directions with mean zero, those of the largest Gram.
    share = (inside.mT @ left[:4, :4] @ inside).trace()
    assert float(share) == pytest.approx(float(torch.linalg.eigvalsh(written)[-3:].sum()))


def test_units_are_kept_by_what_they_read_and_write() -> None:
    model = randomize(vit(intermediate_size=6, num_hidden_layers=1), 2)
    plan = blueprint(model)
    state = model.double().state_dict()
    (units,) = (name for name, space in plan.spaces.items() if space.role == "ffn")
    found = to_the_front(state, plan, {units: 4}).apply(state)
    read, bias, write = (f"vit.layers.0.mlp.{name}" for name in ("fc1.weight", "fc1.bias", "fc2.weight"))

    def score(chosen: tuple[int, ...]) -> float:
        rows = state[read].square().sum(1) + state[bias].square()
        return float((rows * state[write].square().sum(0))[list(chosen)].sum())

    best = max(itertools.combinations(range(6), 4), key=score)
    assert torch.equal(found[read][:4], state[read][list(best)])
    assert torch.equal(found[write][:, :4], state[write][:, list(best)])
