"""Gathers act as the matrices that they stand for."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fusionlab.growing.gather import Gather
from tests.symmetry.models import generator, laws


def matrix(gather: Gather) -> Tensor:
    """The matrix of a gather, shape ``(larger, smaller)``."""
    found = torch.zeros(len(gather.source), gather.size, dtype=torch.float64)
    for row, (source, factor) in enumerate(zip(gather.source.tolist(), gather.factor.tolist(), strict=True)):
        if source >= 0:
            found[row, source] = factor
    return found


gathers = st.builds(
    lambda size, times, extra, factor, pads: (
        Gather.padding(size, size + extra, factor) if pads else Gather.repeating(size, size * times, factor)
    ),
    st.integers(1, 4), st.integers(1, 3), st.integers(0, 4), st.sampled_from([1.0, 0.5]), st.booleans(),
)  # fmt: skip


@laws
@given(gathers, st.integers(0, 2))
def test_it_acts_as_its_matrix(gather: Gather, dim: int) -> None:
    shape = [2, 3, 5]
    shape[dim] = gather.size
    tensor = torch.randn(shape, generator=generator(0), dtype=torch.float64)
    expected = torch.tensordot(matrix(gather), tensor, ([1], [dim])).movedim(0, dim)
    torch.testing.assert_close(gather(tensor, dim), expected)


@laws
@given(gathers, gathers)
def test_blocks_are_a_kronecker_product(outer: Gather, inner: Gather) -> None:
    assert torch.equal(matrix(outer.around(inner)), torch.kron(matrix(outer), matrix(inner)))


@laws
@given(st.lists(gathers, min_size=1, max_size=3))
def test_segments_are_a_block_diagonal(parts: list[Gather]) -> None:
    assert torch.equal(matrix(Gather.beside(*parts)), torch.block_diag(*map(matrix, parts)))


def test_new_places_are_filled_and_old_ones_kept() -> None:
    assert Gather.padding(2, 4)(torch.tensor([3.0, 5.0]), 0, fill=1.0).tolist() == [3, 5, 1, 1]


def test_only_what_changes_something_changes() -> None:
    assert not Gather.identity(3).changes
    assert Gather.padding(3, 3, 2.0).changes
    assert Gather.padding(3, 4).changes


@laws
@given(gathers, gathers)
def test_new_blocks_and_what_is_new_in_old_ones_are_parts_of_their_own(outer: Gather, inner: Gather) -> None:
    blocks = outer.around(inner)
    assert torch.equal(blocks.new > 0, blocks.source < 0)
    grid = blocks.new.reshape(len(outer.source), -1)
    assert set(grid[outer.source < 0].flatten().tolist()) <= {1}
    assert not set(grid[outer.source >= 0].flatten().tolist()) & set(outer.new[outer.new > 0].tolist())


@laws
@given(st.lists(gathers, min_size=2, max_size=3))
def test_segments_share_no_part(parts: list[Gather]) -> None:
    beside = Gather.beside(*parts)
    assert torch.equal(beside.new > 0, beside.source < 0)
    found = [set(piece[piece > 0].tolist()) for piece in beside.new.split([len(part.source) for part in parts])]
    assert sum(map(len, found)) == len(set().union(*found))


def test_no_segments_are_the_map_of_nothing() -> None:
    assert Gather.beside().size == 0
    assert Gather.beside()(torch.zeros(3, 0), 1).shape == (3, 0)
