"""Fisher-weighted averaging: the formula, its limits, its hyperparameters."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.merging import merge_states
from fusionlab.statistics import Fisher, basis_of
from tests.merging.random_states import random_states
from tests.symmetry.models import generator, laws

State = dict[str, Tensor]


def random_diagonals(states: Sequence[State], seed: int = 0) -> list[State]:
    """Values over six powers of ten."""
    draw = generator(seed)
    return [
        {name: 10 ** (6 * torch.rand(t.shape, generator=draw, dtype=torch.float64) - 6) for name, t in state.items()}
        for state in states
    ]


def merge(
    states: Sequence[State],
    diagonals: Sequence[Mapping[str, Tensor]],
    weights: Sequence[float] | None = None,
    **hyperparameters: Any,
) -> State:
    found = [
        {"fisher": Fisher(architecture="", basis=basis_of(state), examples=1, diagonal=diagonal)}
        for state, diagonal in zip(states, diagonals, strict=True)
    ]
    return merge_states(states, "fisher", weights, statistics=found, **hyperparameters)


def assert_close(found: Mapping[str, Tensor], expected: Mapping[str, Any], tolerance: float = 1e-12) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        np.testing.assert_allclose(tensor.numpy(), np.asarray(expected[name]), rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 5.0]])
def test_formula(weights: list[float] | None) -> None:
    """Without a floor it is numpy's average with the weights ``w_i F_i``, number by number."""
    states = random_states(3)
    diagonals = random_diagonals(states)
    shares = np.array(weights or [1.0, 1.0, 1.0])
    expected = {}
    for name, first in states[0].items():
        precisions = np.stack([d[name].numpy() for d in diagonals]) * shares.reshape(-1, *[1] * first.ndim)
        expected[name] = np.average(np.stack([s[name].numpy() for s in states]), axis=0, weights=precisions)
    assert_close(merge(states, diagonals, weights, floor=0), expected)


@pytest.mark.parametrize("normalize", ["none", "model", "parameter"])
def test_equal_fishers_give_the_mean(normalize: str) -> None:
    """With weights the weighted mean."""
    states = random_states(3)
    diagonal = random_diagonals(states)[0]
    for weights in (None, [1.0, 0.0, 4.0]):
        assert_close(
            merge(states, [diagonal] * 3, weights, normalize=normalize), merge_states(states, "simple", weights)
        )


def test_equal_models_give_the_model() -> None:
    """Whatever their Fishers are, to the last digit."""
    state = random_states(1)[0]
    merged = merge([state, dict(state)], random_diagonals([state, state]))
    assert all(torch.equal(merged[name], tensor) for name, tensor in state.items())


def test_infinite_ratio_picks_the_model() -> None:
    """Where one model is infinitely surer than the other, in the limit and where the other's is zero."""
    states = random_states(2)
    large, small = ({name: torch.full_like(t, v) for name, t in states[0].items()} for v in (1e30, 1e-30))
    nothing = {name: torch.zeros_like(t) for name, t in states[0].items()}
    for other in (small, nothing):
        assert_close(merge(states, [large, other], floor=0), states[0])
        assert_close(merge(states, [other, large], floor=0), states[1])
        # The floor leaves a millionth.
        assert_close(merge(states, [large, other]), states[0], tolerance=1e-5)


@laws
@given(
    seed=st.integers(0, 1000),
    weights=st.lists(st.floats(0.01, 10), min_size=2, max_size=4),
    floor=st.sampled_from([0.0, 1e-6, 1.0]),
    normalize=st.sampled_from(["none", "model", "parameter"]),
)
def test_every_number_lies_between_the_models(seed: int, weights: list[float], floor: float, normalize: str) -> None:
    """It is an average: no number leaves the range that the models span."""
    states = random_states(len(weights), seed=seed)
    merged = merge(states, random_diagonals(states, seed), weights, floor=floor, normalize=normalize)
    for name, tensor in merged.items():
        stacked = torch.stack([state[name] for state in states])
        assert bool((tensor >= stacked.amin(0) - 1e-12).all())
        assert bool((tensor <= stacked.amax(0) + 1e-12).all())


def test_floor() -> None:
    """What no data has a say in is averaged: rounding does not decide; from a large floor on, everything is."""
    states = random_states(2)
    diagonals = random_diagonals(states)
    diagonals[0]["w"][0], diagonals[1]["w"][0] = 1e-17, 1e-14
    merged = merge(states, diagonals)
    # It is relative to the size of all values.
    assert_close(merge(states, [{n: 1e-9 * t for n, t in diagonal.items()} for diagonal in diagonals]), merged)
    mean = merge_states(states, "simple")
    torch.testing.assert_close(merged["w"][0], mean["w"][0], rtol=0, atol=1e-12)
    assert float((merged["w"][1:] - mean["w"][1:]).abs().max()) > 0.1
    assert float((merge(states, diagonals, floor=0)["w"][0] - mean["w"][0]).abs().max()) > 0.1
    assert_close(merge(states, diagonals, floor=1e12), mean)


@pytest.mark.parametrize("normalize", ["model", "parameter"])
def test_normalize(normalize: str) -> None:
    """Each diagonal is divided by its Euclidean norm, over the model or by parameter; that changes the merge."""
    states = random_states(2)
    first, second = random_diagonals(states)
    diagonals = [first, {"w": 1e3 * second["w"], "b": 1e-2 * second["b"], "scale": second["scale"]}]
    by_hand = []
    for diagonal in diagonals:
        whole = torch.cat([tensor.flatten() for tensor in diagonal.values()])
        norms = {n: (whole if normalize == "model" else t).square().sum().sqrt() for n, t in diagonal.items()}
        by_hand.append({name: tensor / norms[name] for name, tensor in diagonal.items()})
    merged = merge(states, diagonals, normalize=normalize, floor=0)
    assert_close(merged, merge(states, by_hand, floor=0))
    assert float((merged["b"] - merge(states, diagonals, floor=0)["b"]).abs().max()) > 0.1


def test_parameters_without_fisher_are_averaged() -> None:
    """Those that no model has it of; one that only one model has it of follows that model. Integers are kept."""
    states = [{**state, "steps": torch.tensor([3])} for state in random_states(2)]
    diagonals = random_diagonals(random_states(2))
    del diagonals[0]["b"], diagonals[1]["b"], diagonals[1]["scale"]
    merged, mean = merge(states, diagonals, floor=0), merge_states(states, "simple")
    assert torch.equal(merged["b"], mean["b"])
    torch.testing.assert_close(merged["scale"], states[0]["scale"])
    assert merged["steps"].tolist() == [3]


def test_half_precision_is_weighted_in_float64() -> None:
    """The result is that of the same numbers in float64, rounded once; its type is the first model's."""
    states = random_states(2, torch.bfloat16)
    diagonals = [{n: t.float() for n, t in diagonal.items()} for diagonal in random_diagonals(random_states(2))]
    merged = merge(states, diagonals)
    exact = merge([{name: tensor.double() for name, tensor in state.items()} for state in states], diagonals)
    assert {tensor.dtype for tensor in merged.values()} == {torch.bfloat16}
    for name, tensor in merged.items():
        torch.testing.assert_close(tensor, exact[name].bfloat16(), rtol=2**-8, atol=0)


@pytest.mark.parametrize(
    ("hyperparameters", "message"),
    [
        ({"floor": -1.0}, "floor is -1.0; expected a number from 0 up"),
        ({"floor": float("nan")}, "floor is nan"),
        ({"normalize": "layer"}, "normalize is 'layer'; expected one of none, model, parameter"),
    ],
)
def test_hyperparameters_out_of_range(hyperparameters: dict[str, Any], message: str) -> None:
    """Refused with what was expected."""
    states = random_states(2)
    with pytest.raises(InputError, match=message):
        merge(states, random_diagonals(states), **hyperparameters)


def test_fisher_that_does_not_fit() -> None:
    """Of another model, of another shape, or of one model only: refused."""
    states = random_states(2)
    diagonals = random_diagonals(states)
    wrong = [diagonals[0], {**diagonals[1], "b": torch.ones(3)}]
    with pytest.raises(InputError, match="Fisher information of 'b' has shape 3 for model 1; expected 8"):
        merge(states, wrong)
    found = [Fisher(architecture="", basis=basis_of(states[0]), examples=1, diagonal=d) for d in diagonals]
    with pytest.raises(InputError, match="measured on another model, or on model 1 in another basis"):
        merge_states(states, "fisher", statistics=[{"fisher": f} for f in found])
    with pytest.raises(InputError, match="needs the Fisher information of each model"):
        merge_states(states, "fisher", statistics=[{"fisher": found[0]}, {}])


def test_other_labels_than_were_gathered_with() -> None:
    """Refused by name; the same labels, or none named, are taken."""
    states = random_states(2)
    found = [
        {"fisher": Fisher(architecture="", basis=basis_of(s), examples=1, diagonal=d, settings={"labels": "model"})}
        for s, d in zip(states, random_diagonals(states), strict=True)
    ]
    with pytest.raises(InputError, match="labels is 'expected', but the fisher statistics were gathered with 'model'"):
        merge_states(states, "fisher", statistics=found, labels="expected")
    same, none = (merge_states(states, "fisher", statistics=found, labels=labels) for labels in ("model", None))
    assert_close(same, none, 0)
