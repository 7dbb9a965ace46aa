"""Axes whose copies are indexed by the blocks of another dimension: as a loop over those blocks would act."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fusionlab.symmetry import Alignment, Blueprint, Space
from fusionlab.symmetry.axes import Across, Along, Axis, Concat, Per, chains, refolded, sides_of, unfolded
from fusionlab.symmetry.groups import Invertible, Permutation, Rotary, Scale
from fusionlab.symmetry.leaves import leaves
from fusionlab.symmetry.roles import Role
from tests.symmetry.models import laws

EXPERTS, MEMBERS, UNITS, INNER, WIDTH = 3, 2, 4, 6, 5
ONE, BOTH = (("experts", EXPERTS),), (("experts", EXPERTS), ("members", MEMBERS))


def across(dim: int, inner: Axis, nested: bool = False) -> Across:
    return Across(BOTH if nested else ONE, dim, inner)


UNIT_AXIS, FACTORS = Along("units", UNITS), Per("units", UNITS, Along("factor", 1))
PARAMETERS: dict[str, tuple[Axis, ...]] = {
    "router": (Along("experts", EXPERTS), Along("stream", WIDTH, is_dual=True)),
    # Experts outside, and experts with what they write beside it: (experts, units, stream), (stream, experts x 7).
    "up": (Along("experts", EXPERTS), across(0, FACTORS), Along("stream", WIDTH, is_dual=True)),
    "down": (Along("experts", EXPERTS), Along("stream", WIDTH), across(0, FACTORS.dual())),
    "turned": (across(1, FACTORS), Per("experts", EXPERTS, Along("stream", WIDTH))),
    "bias": (Per("experts", EXPERTS, FACTORS),),
    "own": (Along("experts", EXPERTS), across(0, Along("basis", INNER))),
    "own dual": (across(1, Along("basis", INNER, is_dual=True)), Along("experts", EXPERTS)),
    # One basis for all members of an expert.
    "shared": (Per("experts", EXPERTS, Per("members", MEMBERS, Along("basis", INNER))),),
    "planes": (Along("experts", EXPERTS), across(0, Along("planes", INNER)), Along("stream", WIDTH)),
    "nested": (Per("experts", EXPERTS, Along("members", MEMBERS)), across(0, Along("pairs", INNER), nested=True)),
}
SPACES = {
    space.name: space
    for space in (
        Space("experts", Permutation(EXPERTS), Role.EXPERTS),
        Space("members", Permutation(MEMBERS), Role.EXPERTS, index=("experts",), copies=(EXPERTS,)),
        Space("stream", Invertible(WIDTH), Role.RESIDUAL),
        Space("units", Permutation(UNITS), Role.UNITS, index=("experts",), copies=(EXPERTS,)),
        Space("factor", Scale(1, signed=True), Role.UNITS, index=("experts", "units"), copies=(EXPERTS, UNITS)),
        Space("basis", Invertible(INNER), Role.UNITS, index=("experts",), copies=(EXPERTS,)),
        Space("planes", Rotary(INNER), Role.UNITS, index=("experts",), copies=(EXPERTS,)),
        Space("pairs", Invertible(INNER), Role.UNITS, index=("experts", "members"), copies=(EXPERTS, MEMBERS)),
    )
}
BLUEPRINT = Blueprint("across", SPACES, PARAMETERS)


def length(axis: Axis) -> int:
    assert axis.size is not None
    return axis.size


def state(seed: int) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(*map(length, axes), generator=draw, dtype=torch.float64) for name, axes in PARAMETERS.items()
    }


def random(seed: int) -> Alignment:
    return Alignment.random(BLUEPRINT, torch.Generator().manual_seed(seed))


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, msg=lambda m, n=name: f"{n}: {m}")


def by_expert(alignment: Alignment, start: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same by plain matrices, expert by expert."""
    e = alignment.elements
    order, stream = e["experts"], e["stream"]
    dual = torch.linalg.inv(stream).mT

    def units(i: int) -> Tensor:
        """(G h)[u] = factor[u] h[order[u]] as a matrix."""
        return e["factor"][i, :, 0].diag() @ torch.eye(UNITS, dtype=torch.float64)[e["units"][i]]

    def planes(i: int) -> Tensor:
        eye = torch.eye(INNER, dtype=torch.float64)
        return SPACES["planes"].group.act(e["planes"][i], eye)

    out = {name: torch.empty_like(tensor) for name, tensor in start.items()}
    out["router"] = start["router"][order] @ dual.mT
    for i, source in enumerate(order.tolist()):
        inverse = torch.linalg.inv(units(i)).mT
        out["up"][i] = units(i) @ start["up"][source] @ dual.mT
        out["down"][i] = stream @ start["down"][source] @ inverse.mT
        columns, old = slice(i * WIDTH, (i + 1) * WIDTH), slice(source * WIDTH, (source + 1) * WIDTH)
        out["turned"][:, columns] = units(i) @ start["turned"][:, old] @ stream.mT
        out["bias"].view(EXPERTS, UNITS)[i] = units(i) @ start["bias"].view(EXPERTS, UNITS)[source]
        out["own"][i] = e["basis"][i] @ start["own"][source]
        out["own dual"][:, i] = torch.linalg.inv(e["basis"][i]).mT @ start["own dual"][:, source]
        out["planes"][i] = planes(i) @ start["planes"][source] @ stream.mT
        for j, member in enumerate(e["members"][i].tolist()):
            shared, before = (t["shared"].view(EXPERTS, MEMBERS, INNER) for t in (out, start))
            shared[i, j] = e["basis"][i] @ before[source, member]
            out["nested"][i * MEMBERS + j] = e["pairs"][i, j] @ start["nested"][source * MEMBERS + member]
    return out


@laws
@given(seed=st.integers(0, 10_000))
def test_an_alignment_acts_as_a_loop_over_experts(seed: int) -> None:
    alignment, start = random(seed), state(seed + 1)
    assert_close(alignment.apply(start), by_expert(alignment, start))


@laws
@given(seed=st.integers(0, 10_000))
def test_alignments_form_a_group(seed: int) -> None:
    first, second, third, start = random(seed), random(seed + 1), random(seed + 2), state(seed)
    moved = first.apply(start)
    assert_close(second.compose(first).apply(start), second.apply(moved))
    assert_close(first.inverse().apply(moved), start)
    assert_close(first.apply(first.inverse().apply(start)), start)
    assert_close(Alignment.identity(BLUEPRINT).compose(first).apply(start), moved)
    left, right = third.compose(second).compose(first), third.compose(second.compose(first))
    for name in SPACES:
        torch.testing.assert_close(left.element(name), right.element(name))
    nothing = first.inverse().compose(first)
    for name, space in SPACES.items():
        torch.testing.assert_close(nothing.element(name), space.group.identity(space.copies))


@pytest.mark.parametrize("name", SPACES)
def test_an_element_alone_acts_as_the_loop_does(name: str) -> None:
    """The others keep their bases; where experts stay, nothing moves between them."""
    whole, start = random(2), state(4)
    alone = {n: s.group.identity(s.copies) for n, s in SPACES.items()} | {name: whole.elements[name]}
    moved = Alignment(BLUEPRINT, {name: whole.elements[name]}).apply(start)
    assert_close(moved, by_expert(Alignment(BLUEPRINT, alone), start))
    assert {n for n, tensor in start.items() if not torch.equal(moved[n], tensor)} == set(BLUEPRINT.touching([name]))


@laws
@given(
    sizes=st.permutations([EXPERTS * MEMBERS * 2, 7, 2]),
    nested=st.booleans(),
    data=st.data(),
)
def test_folding_rows_back_undoes_unfolding(sizes: list[int], nested: bool, data: st.DataObject) -> None:
    """Whatever dimensions are meant, and in whatever order; a row of a block is that block's row."""
    other = sizes.index(EXPERTS * MEMBERS * 2)
    dim = data.draw(st.sampled_from([d for d in range(3) if d != other]))
    tensor = torch.arange(math.prod(sizes)).reshape(sizes)
    axis = across(other, Along("basis", sizes[dim]), nested)
    rows, path = unfolded(axis, tensor, dim)
    counts = (EXPERTS, MEMBERS) if nested else (EXPERTS,)
    assert path == (("experts", "members") if nested else ("experts",))
    assert rows.shape == (*counts, sizes[dim], tensor.numel() // sizes[dim] // math.prod(counts))
    assert torch.equal(refolded(axis, rows, tensor.shape, dim), tensor)
    blocks = tensor.movedim((other, dim), (0, 1)).chunk(math.prod(counts))
    for block, found in zip(blocks, rows.reshape(-1, *rows.shape[-2:]), strict=True):
        assert torch.equal(found.sort(-1).values, block.movedim(1, 0).reshape(sizes[dim], -1).sort(-1).values)


def test_a_leaf_across_has_its_blocks_first() -> None:
    tensor = state(0)["up"]
    (leaf,) = leaves(PARAMETERS["up"][1], tensor, 1)
    assert (leaf.space, leaf.is_dual, leaf.path) == ("factor", False, ("experts", "units"))
    assert leaf.view.shape == (EXPERTS, UNITS, 1, WIDTH)
    assert torch.equal(leaf.by_copies(["experts", "units"])[2, 1, 0], tensor[2, 1])


def test_an_axis_across_is_described_as_its_inner_one() -> None:
    axis = PARAMETERS["nested"][1]
    assert axis.size == INNER
    assert list(chains(axis)) == [("experts", "members", "pairs")]
    assert list(sides_of(axis.dual())) == [("pairs", True)]
    assert axis.dual().dual() == axis != axis.dual()
    with pytest.raises(TypeError):
        random(0).transform(torch.zeros(EXPERTS, INNER), (Along("experts", EXPERTS), Concat(across(0, axis.inner))))
