"""A blueprint tried on a model itself: what does not hold is noticed, whatever chance draws."""

import torch
from torch import Tensor, nn

from fusionlab.symmetry import Blueprint, Space
from fusionlab.symmetry.axes import Along
from fusionlab.symmetry.groups import Permutation
from fusionlab.symmetry.infer.other_batch import OtherBatch


class Ordered(nn.Module):
    """Two numbers that are told apart."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


def test_two_that_may_not_change_places_do_when_they_are_tried() -> None:
    """Of two there are two orders, and a random one is often that which they are in."""
    tried = OtherBatch(Ordered(), {"x": torch.randn(3, 2, generator=torch.Generator().manual_seed(0))})
    for count in range(8):
        others = {f"none{i}": Space(f"none{i}", Permutation(2), "x") for i in range(count)}
        spaces = {**others, "pair": Space("pair", Permutation(2), "x")}
        wrong = tried.wrong(Blueprint("ordered", spaces, {"weight": (Along("pair", 2),)}))
        assert wrong is not None
        assert wrong.space == "pair"
