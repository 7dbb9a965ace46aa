"""Layers of one kind: the same modules but for sizes, and the same entries in a config's lists."""

from typing import Any

import pytest
from torch import nn

from fusionlab.symmetry import SymmetryError
from fusionlab.symmetry.infer.kinds import is_increasing, kinds_of, signature


@pytest.mark.parametrize(
    ("value", "expected"),
    [([0, 2, 3], True), ([1], True), ([1, 1], False), ([3, 2], False), (["a", "b"], False), ([1.0, 2.0], False),
     ([False, True], False)],
)  # fmt: skip
def test_indices_in_order_say_nothing_of_a_layer(value: list[Any], expected: bool) -> None:
    assert is_increasing(value) == expected


def chain(length: int) -> nn.Module:
    """So many modules, each inside of the one before."""
    module: nn.Module = nn.ReLU()
    for _ in range(length - 1):
        module = nn.ModuleDict({"inside": module})
    return module


def test_modules_may_be_nested_forty_deep() -> None:
    """Each level counts once, whether it has names or numbers."""
    signature(chain(41))
    with pytest.raises(SymmetryError, match="nested deeper than 40 in a ReLU"):
        signature(chain(42))
    signature(nn.ModuleList([chain(40)]))
    with pytest.raises(SymmetryError, match="nested deeper than 40"):
        signature(nn.ModuleList([chain(41)]))


def test_lists_of_the_length_go_together() -> None:
    """What a module holds beside them is no layer, however many children it has."""
    parent = nn.ModuleDict(
        {
            "layers": nn.ModuleList([nn.Linear(2, 3), nn.Linear(4, 5)]),
            "norms": nn.ModuleList([nn.LayerNorm(2), nn.LayerNorm(4)]),
            "head": nn.ModuleDict({"first": nn.Linear(2, 2), "second": nn.ReLU()}),
            "more": nn.ModuleList([nn.ReLU(), nn.Tanh(), nn.ReLU()]),
        }
    )
    parent.register_module("none", None)
    first, second = kinds_of(parent, 2, [])
    assert first == second
    parent["norms"][1] = nn.Identity()
    first, second = kinds_of(parent, 2, [])
    assert first != second
    first, second, third = kinds_of(parent, 3, [["a", "b", "a"]])
    assert first == third != second
