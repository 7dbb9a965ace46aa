"""Axes cut a tensor into the stretches that their spaces act on."""

import torch
from torch import Tensor

from fusionlab.symmetry.axes import Along, Concat, Fixed, Per, Scaled
from fusionlab.symmetry.leaves import leaves
from tests.symmetry.test_axes import BOTH, FUSED, SQUARED


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


def test_every_entry_is_in_one_leaf_whatever_multiplies_it():
    tensor = torch.arange(5.0).reshape(5, 1).expand(5, 3)
    (leaf,) = leaves(BOTH, tensor, 0)
    assert (leaf.space, leaf.power, leaf.path, leaf.factors) == ("signs", -1, ("stream",), (("gain", -1),))
    assert leaf.spaces == ("stream", "gain", "signs")
    assert leaf.view.shape == (5, 1, 3)
    (leaf,) = leaves(SQUARED, tensor, 0)
    assert (leaf.space, leaf.power, leaf.is_dual, leaf.factors) == ("factor", -2, True, ())
    assert leaf.view.shape == (5, 1, 3)


def test_a_factor_sees_all_that_it_multiplies_as_one_coordinate():
    """A gain of each of two heads, around the values' four coordinates and one more that nothing acts on."""
    axis = Per("heads", 2, Scaled("gain", -1, Concat(Along("values", 4), Fixed(1))))
    tensor = torch.arange(10.0 * 3).reshape(10, 3)
    values, alone = leaves(axis, tensor, 0)
    assert values.along("heads") is None
    assert values.along("values") is values
    seen = values.along("gain")
    assert seen is not None
    assert (seen.space, seen.power, tuple(seen.view.shape)) == ("gain", -1, (2, 1, 12))
    assert seen.by_copies(["heads"])[1, 0].tolist() == tensor[5:9].flatten().tolist()
    assert (alone.space, tuple(alone.view.shape)) == ("gain", (2, 1, 3))
