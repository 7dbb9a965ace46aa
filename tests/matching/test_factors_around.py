"""Heads with a gain beside the basis inside of them: order, signs and rotations, against all that there are."""

import itertools

import pytest
import torch
from torch import Tensor

from fusionlab.matching.blocks import blocks
from fusionlab.matching.options import ALL, MatchOptions
from fusionlab.matching.weights import match_weights, squared_distance
from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.symmetry.axes import Along, scaled
from fusionlab.symmetry.builder import BlueprintBuilder
from fusionlab.symmetry.groups import Invertible, Permutation, Scale
from tests.matching.problems_at_random import normal

HEADS, WIDTH = 3, 2


def gains() -> Blueprint:
    """A gain for each head, values, and an output that reads both."""
    b = BlueprintBuilder("gains")
    heads = b.space("heads", Permutation(HEADS), role="heads", layer=0)
    basis = b.space("vo", Invertible(WIDTH), role="attention.vo", layer=0, index=("heads",))
    gain = b.space("heads.scale", Scale(1, signed=True), role="ffn.scale", layer=0, index=("heads",))
    b.parameter("gain", b.per(heads, gain))
    b.parameter("value", b.per(heads, basis), None)
    b.parameter("output", None, b.per(heads, scaled("heads.scale", -1, Along("vo", WIDTH, is_dual=True))))
    return b.build()


def drawn(seed: int) -> dict[str, Tensor]:
    shapes = {"gain": (HEADS,), "value": (HEADS * WIDTH, 4), "output": (4, HEADS * WIDTH)}
    return {name: normal(*shape, seed=seed + place) for place, (name, shape) in enumerate(shapes.items())}


def worth(source: dict[str, Tensor], anchor: dict[str, Tensor], here: int, there: int) -> float:
    """The most that a source's head gains at the place of an anchor's, over both signs and all rotations."""
    rows = [slice(head * WIDTH, (head + 1) * WIDTH) for head in (here, there)]
    values = anchor["value"][rows[0]] @ source["value"][rows[1]].T
    outputs = anchor["output"][:, rows[0]].T @ source["output"][:, rows[1]]
    product = float(anchor["gain"][here] * source["gain"][there])
    return max(sign * product + float(torch.linalg.matrix_norm(values + sign * outputs, "nuc")) for sign in (1, -1))


def test_the_factor_is_around_and_no_unit_of_a_plain_block() -> None:
    description = gains()
    (block,) = blocks(list(description.spaces.values()), description)
    assert ([s.name for s in block.inner], [s.name for s in block.around]) == (["vo"], ["heads.scale"])
    assert not block.is_units


@pytest.mark.parametrize("seed", range(0, 60, 10))
def test_order_signs_and_rotations_are_the_joint_optimum(seed: int) -> None:
    description, source, anchor = gains(), drawn(seed), drawn(seed + 100)
    found = match_weights(source, anchor, description, MatchOptions(spaces=(ALL,), rescale="off"))
    gained = (
        sum(float((anchor[n].square() + source[n].square()).sum()) for n in anchor)
        - squared_distance(found.apply(source), anchor)
    ) / 2
    rivals = [
        sum(worth(source, anchor, here, there) for here, there in enumerate(order))
        for order in itertools.permutations(range(HEADS))
    ]
    assert gained == pytest.approx(max(rivals), rel=1e-9)


@pytest.mark.parametrize("rescale", ["sequential", "joint"])
def test_stretching_brings_models_no_further_apart(rescale: str) -> None:
    for seed in range(0, 60, 10):
        description, source, anchor = gains(), drawn(seed), drawn(seed + 100)
        ends = [
            squared_distance(match_weights(source, anchor, description, options).apply(source), anchor)
            for options in (MatchOptions(spaces=(ALL,), rescale=how) for how in ("off", rescale))
        ]
        assert ends[1] <= ends[0] + 1e-9
        same = match_weights(anchor, anchor, description, MatchOptions(spaces=(ALL,), rescale=rescale))
        assert squared_distance(Alignment(description, same.elements).apply(anchor), anchor) < 1e-20
