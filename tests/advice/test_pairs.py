"""The numbers of a pair, against their definitions; what is compared with what."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fusionlab.advice.nearness import Relation
from fusionlab.advice.pairs import Sums, compare, majority, pattern
from fusionlab.advice.tensors import Weights, state_weights
from fusionlab.errors import InputError


def weights(state: dict[str, Tensor], name: str = "m") -> Weights:
    return state_weights(state, name, None, {})


def test_sums_are_those_of_whole_tensors() -> None:
    """In pieces; angle, distance and equal numbers by definition, in float64."""
    first, second = (torch.randn(3, 700_000, dtype=torch.float64) + 2 for _ in range(2))
    second[0] = first[0]
    pair = compare(weights({"a.1": first}), weights({"a.1": second}))
    (kind,) = pair.kinds
    a, b = ((t - t.mean()).flatten() for t in (first, second))
    assert kind.cosine == pytest.approx(float(a @ b / (a.norm() * b.norm())), rel=1e-9)
    distance = (first - second).norm() / (first.norm() * second.norm()).sqrt()
    assert kind.distance == pytest.approx(float(distance), rel=1e-9)
    assert kind.equal == pytest.approx(1 / 3)
    assert kind.angle == pytest.approx(math.degrees(math.acos(kind.cosine)))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=4, max_size=40), st.integers(1, 3))
def test_sums_do_not_depend_on_pieces(numbers: list[float], cut: int) -> None:
    a = torch.tensor(numbers, dtype=torch.float64)
    b = a.flip(0) * 2
    whole, parts = Sums(), Sums()
    whole.add(a, b)
    for start in range(0, len(a), cut):
        parts.add(a[start : start + cut], b[start : start + cut])
    assert parts.count == whole.count
    assert parts.equal == whole.equal
    assert torch.allclose(parts.totals, whole.totals, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize(
    ("relations", "expected"),
    [
        ([], None),
        ([None, None], None),
        (["own", None], "own"),
        (["own", "own", "unrelated"], "own"),
        (["own", "unrelated", "unrelated"], "unrelated"),
        (["own", "unrelated"], "unrelated"),
        (["own", "related", "unrelated"], "related"),
    ],
)
def test_more_than_half(relations: list[Relation | None], expected: Relation | None) -> None:
    assert majority(relations) == expected


def test_what_cannot_be_compared_is_named() -> None:
    pair = compare(
        weights({"a": torch.randn(9, 9), "b": torch.randn(3), "c": torch.randn(2, 2)}),
        weights({"a": torch.randn(9, 8), "b": torch.randn(3), "d": torch.randn(2, 2)}),
    )
    assert (pair.shapes, pair.only, pair.kinds) == (["a"], ["c", "d"], [])
    assert pair.vectors is not None


def test_layers_are_one_kind() -> None:
    state = {f"layer.{index}.w": torch.randn(20, 20) for index in range(3)}
    (kind,) = compare(weights(state), weights({name: 2 * tensor for name, tensor in state.items()})).kinds
    assert (kind.name, kind.tensors, kind.relation) == ("layer.*.w", 3, "own")
    assert kind.cosine == pytest.approx(1)
    assert pattern("h.11.mlp.fc1.weight") == "h.*.mlp.fc*.weight"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_lengths_in_another_order(dtype: torch.dtype) -> None:
    """Renumbered and turned matrices are as long; those drawn apart are not."""
    matrix = torch.randn(64, 64)
    turned = torch.linalg.qr(torch.randn(64, 64)).Q @ matrix
    other = torch.randn(64, 64)
    for second, expected in ((matrix.flip(0), True), (turned, True), (matrix, False), (other, False)):
        pair = compare(weights({"w": matrix.to(dtype)}), weights({"w": second.to(dtype)}))
        assert pair.same_lengths == expected


def test_long_rows_and_experts_are_read_in_part() -> None:
    """A vocabulary on the second axis, experts of which each is a matrix."""
    for shape in ((8, 70_000), (3, 300, 300)):
        first = torch.randn(shape)
        (near,) = compare(weights({"w": first}), weights({"w": first + 0.1 * torch.randn(shape)})).kinds
        (far,) = compare(weights({"w": first}), weights({"w": torch.randn(shape)})).kinds
        assert (near.relation, far.relation) == ("own", "unrelated")


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_numbers_that_are_not_finite_are_refused(bad: float) -> None:
    """But in masks, which are meant to hold them."""
    good, broken = torch.randn(9, 9), torch.randn(9, 9)
    broken[3, 4] = bad
    for models in ((good, broken), (broken, good)):
        one, other = (weights({"w": state}, "bad" if state is broken else "good") for state in models)
        with pytest.raises(InputError, match=r"^bad: parameter w holds 1 value of 81 that are NaN or infinite"):
            compare(one, other)
    sourced = state_weights({"w": broken}, "bad", "path/to/bad", {})
    with pytest.raises(InputError, match=r"^path/to/bad: parameter w holds"):
        compare(weights({"w": good}), sourced)
    pair = compare(weights({"w": good, "attn.mask": good}), weights({"w": good, "attn.mask": broken}))
    assert pair.whole.equal == 1


def test_numbers_whose_squares_are_not_finite_are_refused() -> None:
    large = torch.full((9, 9), 1e200, dtype=torch.float64)
    with pytest.raises(InputError, match="the parameter w of m and m has a length that is no finite number in float64"):
        compare(weights({"w": large}), weights({"w": large + 1}))


def test_zero_in_one_model_alone_has_no_angle_and_no_distance() -> None:
    """Biases that were never trained: they are not the same as others, and not at a distance of 0."""
    matrix, bias = torch.randn(9, 9), torch.randn(9)
    for one, other in ((bias, 0 * bias), (0 * bias, bias)):
        pair = compare(weights({"w": matrix, "b": one}), weights({"w": matrix, "b": other}))
        assert pair.vectors is not None
        assert (pair.vectors.cosine, pair.vectors.angle, pair.vectors.distance) == (None, None, None)
        assert pair.vectors.equal == 0
    pair = compare(weights({"w": matrix, "b": 0 * bias}), weights({"w": matrix, "b": 0 * bias}))
    assert pair.vectors is not None
    assert (pair.vectors.cosine, pair.vectors.distance, pair.vectors.equal) == (1, 0, 1)


def test_no_tensors_have_no_numbers() -> None:
    matrices = compare(weights({"b": torch.randn(3)}), weights({"b": torch.randn(3)})).matrices
    assert (matrices.tensors, matrices.cosine, matrices.distance, matrices.equal) == (0, None, None, None)
