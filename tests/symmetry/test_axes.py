"""Axes cut a tensor into the stretches that their spaces act on."""

import torch
from torch import Tensor

from fusionlab.symmetry.axes import Along, Concat, Fixed, Per, spaces_of
from fusionlab.symmetry.leaves import leaves

FUSED = Concat(Per("heads", 2, Along("qk", 3)), Per("heads", 2, Along("qk", 3).dual()), Along("ffn", 4))


def test_sizes_add_up():
    """Sizes multiply over blocks and add over segments; an open length leaves the whole open."""
    assert Fixed().size is None
    assert Fixed(7).size == 7
    assert Along("a", 5).size == 5
    assert Per("heads", 3, Along("a", 5)).size == 15
    assert Per("heads", 3, Fixed()).size is None
    assert FUSED.size == 16
    assert Concat(Along("a", 5), Fixed()).size is None


def test_dual_flips_every_space_once_and_twice_is_nothing():
    assert Along("a", 5).dual() == Along("a", 5, is_dual=True)
    assert Fixed(3).dual() == Fixed(3)
    flipped = FUSED.dual()
    assert [leaf.is_dual for leaf in leaves(flipped, torch.zeros(16, 1), 0)] == [True, False, True]
    assert flipped.dual() == FUSED


def test_spaces_of_lists_outer_before_inner():
    assert list(spaces_of(FUSED)) == ["heads", "qk", "heads", "qk", "ffn"]
    assert list(spaces_of(Fixed(3))) == []


def cut(axis: object, tensor: Tensor, dim: int) -> list[tuple]:
    return [(leaf.space, leaf.is_dual, leaf.path, tuple(leaf.view.shape)) for leaf in leaves(axis, tensor, dim)]


def test_a_leaf_by_copies_puts_the_blocks_of_its_space_first_and_all_others_behind():
    """Two blocks of three, each of four coordinates: an element for each of the three, for both, for none."""
    tensor = torch.arange(24 * 5).reshape(24, 5)
    (leaf,) = leaves(Per("groups", 2, Per("members", 3, Along("each", 4))), tensor, 0)
    by_member = leaf.by_copies(["members"])
    assert by_member.shape == (3, 4, 2, 5)
    assert torch.equal(by_member[2, 1, 1], tensor[12 + 2 * 4 + 1])
    assert leaf.by_copies(()).shape == (4, 2, 3, 5)
    assert torch.equal(leaf.by_copies(()).flatten(1)[3], tensor[3::4].flatten())
    crossed = leaf.by_copies(["members", "groups"])
    assert crossed.shape == (3, 2, 4, 5)
    assert torch.equal(crossed[2, 1, 1], tensor[12 + 2 * 4 + 1])
    by_member[0] = -1
    assert (tensor < 0).sum() == 4 * 2 * 5


def test_leaves_of_a_fused_axis():
    """Each segment becomes one leaf, with one dimension for each block around it and all features behind."""
    tensor = torch.arange(16 * 5, dtype=torch.float64).reshape(16, 5)
    assert cut(FUSED, tensor, 0) == [
        ("qk", False, ("heads",), (2, 3, 5)),
        ("qk", True, ("heads",), (2, 3, 5)),
        ("ffn", False, (), (4, 5)),
    ]
    query, key, hidden = leaves(FUSED, tensor, 0)
    assert torch.equal(query.view[1, 2], tensor[5])
    assert torch.equal(key.view[1, 0], tensor[9])
    assert torch.equal(hidden.view, tensor[12:])


def test_leaves_along_the_second_dimension_are_the_columns():
    tensor = torch.arange(5 * 16, dtype=torch.float64).reshape(5, 16)
    query, key, hidden = leaves(FUSED, tensor, 1)
    assert torch.equal(query.view[1, 2], tensor[:, 5])
    assert torch.equal(key.view[0, 1], tensor[:, 7])
    assert torch.equal(hidden.view, tensor[:, 12:].T)


def test_leaves_of_nested_blocks_and_of_a_vector():
    """The path lists blocks outermost first; a vector has one feature."""
    axis = Per("groups", 2, Per("members", 3, Along("each", 2)))
    (leaf,) = leaves(axis, torch.arange(12), 0)
    assert leaf.path == ("groups", "members")
    assert leaf.view.shape == (2, 3, 2, 1)
    assert leaf.view[1, 2, 0, 0] == 10


def test_open_length_takes_what_is_left():
    axis = Concat(Along("a", 2), Fixed())
    first, rest = leaves(axis, torch.arange(7), 0)
    assert (first.space, rest.space) == ("a", None)
    assert rest.view.flatten().tolist() == [2, 3, 4, 5, 6]


def test_leaves_are_views_that_write_through():
    """A matrix is not copied, whichever dimension is cut."""
    for dim in (0, 1):
        tensor = torch.zeros(16, 16)
        for leaf in leaves(FUSED, tensor, dim):
            leaf.view.fill_(1.0)
        assert bool((tensor == 1).all())
