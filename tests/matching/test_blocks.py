"""Spaces that meet inside the blocks of another, as channels of a convolution's groups, are solved with these."""

import itertools

import pytest
import torch
from torch import Tensor

from fusionlab.matching.blocks import blocks
from fusionlab.matching.options import MatchOptions
from fusionlab.matching.weights import match_weights, squared_distance
from fusionlab.symmetry import Alignment, Blueprint, Space
from fusionlab.symmetry.axes import Across, Along, Fixed, Per
from fusionlab.symmetry.groups import Orthogonal, Permutation, Scale
from fusionlab.symmetry.roles import Role
from tests.symmetry.models import generator

GROUPS, CHANNELS, HEADS, WIDTH = 3, 4, 2, 5


def space(name: str, group: Permutation | Orthogonal | Scale, role: Role, *index: tuple[str, int]) -> Space:
    return Space(name, group, role, index=tuple(n for n, _ in index), copies=tuple(count for _, count in index))


def convolutions() -> Blueprint:
    """Two grouped convolutions behind each other; something that is known writes to the first and reads the second."""
    around = ("groups", GROUPS)
    spaces = [
        space("groups", Permutation(GROUPS), Role.GROUPS),
        space("second", Permutation(CHANNELS), Role.UNITS, around),
        space("first", Permutation(CHANNELS), Role.UNITS, around),
    ]

    def per(name: str, is_dual: bool = False) -> Per:
        return Per("groups", GROUPS, Along(name, CHANNELS, is_dual))

    parameters = {
        "in": (per("first"), Fixed(6)),
        "between": (per("second"), Across((around,), 0, Along("first", CHANNELS, is_dual=True))),
        "out": (Fixed(2), per("second", is_dual=True)),
    }
    return Blueprint("convolutions", {s.name: s for s in spaces}, parameters)


def heads_in_groups() -> Blueprint:
    """Heads of every group with a basis each."""
    groups, heads = ("groups", GROUPS), ("heads", HEADS)
    spaces = [
        space("groups", Permutation(GROUPS), Role.GROUPS),
        space("heads", Permutation(HEADS), Role.HEADS, groups),
        space("inside", Orthogonal(WIDTH), Role.QUERY_KEY, groups, heads),
    ]
    axis = Per("groups", GROUPS, Per("heads", HEADS, Along("inside", WIDTH)))
    parameters = {
        "queries": (axis, Fixed(4)),
        "keys": (axis.dual(), Fixed(4)),
        "said": (Per("groups", GROUPS, Fixed(1)),),
    }
    return Blueprint("heads in groups", {s.name: s for s in spaces}, parameters)


def drawn(blueprint: Blueprint, seed: int) -> dict[str, Tensor]:
    draw = generator(seed)
    shapes = {name: [axis.size for axis in axes] for name, axes in blueprint.parameters.items()}
    return {name: torch.randn(*shape, generator=draw, dtype=torch.float64) for name, shape in shapes.items()}


def test_of_channels_that_meet_those_are_nested_that_parameters_say_most_of_alone() -> None:
    blueprint = convolutions()
    outer, inner = blocks(list(blueprint.spaces.values()), blueprint)
    assert (outer.permutation, [b.permutation for b in outer.nested]) == (
        blueprint.spaces["groups"],
        [blueprint.spaces["first"]],
    )
    assert (inner.permutation, inner.nested) == (blueprint.spaces["second"], ())


@pytest.mark.parametrize("make", [convolutions, heads_in_groups])
@pytest.mark.parametrize("seed", range(4))
def test_a_planted_element_is_found_again(make: type[Blueprint], seed: int) -> None:
    blueprint = make()
    anchor = drawn(blueprint, seed)
    source = Alignment.random(blueprint, generator(seed + 10)).apply(anchor)
    found = match_weights(source, anchor, blueprint, MatchOptions(spaces=("all",), rescale="off"))
    assert squared_distance(source, anchor) > 1
    assert squared_distance(found.apply(source), anchor) < 1e-20


def test_heads_of_every_group_are_assigned_by_the_best_of_all_orders() -> None:
    """Of unrelated models, against every order of heads with the best rotation inside of each pair."""
    blueprint = heads_in_groups()
    source, anchor = drawn(blueprint, 0), drawn(blueprint, 1)
    options = MatchOptions(spaces=("heads", "attention.qk"), rescale="off")
    reached = squared_distance(match_weights(source, anchor, blueprint, options).apply(source), anchor)
    best = min(
        squared_distance(rotated(source, anchor, blueprint, torch.tensor(orders)).apply(source), anchor)
        for orders in itertools.product(itertools.permutations(range(HEADS)), repeat=GROUPS)
    )
    assert reached == pytest.approx(best, rel=1e-12)


def rotated(source: dict[str, Tensor], anchor: dict[str, Tensor], blueprint: Blueprint, orders: Tensor) -> Alignment:
    """Heads in these orders, and the rotation of each by the singular vectors of its correlation."""
    moved = Alignment(blueprint, {"heads": orders}).apply(source)
    product = sum(
        anchor[n].view(GROUPS, HEADS, WIDTH, -1) @ moved[n].view(GROUPS, HEADS, WIDTH, -1).mT
        for n in ("queries", "keys")
    )
    left, _, right = torch.linalg.svd(product)
    return Alignment(blueprint, {"heads": orders, "inside": left @ right})


@pytest.mark.parametrize("start", ["known", "annealed", "as-is"])
@pytest.mark.parametrize("inside", [True, False])
def test_factors_inside_of_copies_that_keep_their_order_are_found(start: str, inside: bool) -> None:
    """Heads in another order, the units inside of which keep theirs: with a rotation in each head as well, and without.

    Then a unit's factor is no part of a head's block.
    """
    heads, units = 3, 4
    spaces = [
        space("heads", Permutation(heads), Role.HEADS),
        space("units", Permutation(units), Role.UNITS, ("heads", heads)),
        space("factors", Scale(1), Role.UNIT_SCALE, ("heads", heads), ("units", units)),
        space("rotation", Orthogonal(WIDTH), Role.QUERY_KEY, ("heads", heads)),
    ]
    factor = Per("heads", heads, Per("units", units, Along("factors", 1)))
    rotation = Per("heads", heads, Along("rotation", WIDTH))
    parameters = {"in": (factor, Fixed(6)), "out": (Fixed(5), factor.dual()), "query": (rotation, Fixed(7))}
    description = Blueprint("heads", {one.name: one for one in spaces}, parameters)
    draw = generator(2)
    shapes = {"in": (heads * units, 6), "out": (5, heads * units), "query": (heads * WIDTH, 7)}
    anchor = {name: torch.randn(shape, generator=draw, dtype=torch.float64) for name, shape in shapes.items()}
    elements = {"heads": torch.tensor([2, 0, 1])}
    elements["factors"] = torch.rand(heads, units, 1, generator=draw, dtype=torch.float64) + 0.5
    if inside:
        elements["rotation"] = Orthogonal(WIDTH).random((heads,), draw)
    planted = Alignment(description, elements)
    chosen = ("heads", "ffn.scale", *(["attention.qk"] if inside else []))
    found = match_weights(planted.apply(anchor), anchor, description, MatchOptions(spaces=chosen, start=start))
    assert torch.equal(found.element("heads"), planted.inverse().element("heads"))
    for name in elements.keys() - {"heads"}:
        assert torch.allclose(found.element(name), planted.inverse().element(name), rtol=1e-6), name
