"""Example inputs in every form that they are given in; what is no example is one sentence."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fusionlab
from fusionlab.symmetry import SymmetryError

X = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 9), nn.Linear(9, 4)

    def forward(self, x: Tensor) -> Any:
        return self.down(nn.functional.gelu(self.up(x)))


@dataclass
class Out:
    y: Tensor


class Dataclass(Net):
    def forward(self, x: Tensor) -> Any:
        return Out(super().forward(x))


class Nothing(Net):
    def forward(self, x: Tensor) -> Any:
        return None


@pytest.mark.parametrize("given", [{"x": X}, (X,), [X], X, {"x": X.numpy()}], ids=["dict", "tuple", "list", "x", "np"])
@pytest.mark.parametrize("make", [Net, Dataclass])
def test_every_form_of_an_example_is_taken(make: Any, given: Any) -> None:
    assert [str(space.group) for space in fusionlab.blueprint(make(), given).spaces.values()] == ["S(9)"]


@pytest.mark.parametrize(
    ("model", "given", "said"),
    [
        (Net(), {"x": {"y": X}}, r"the example input 'x' is a dict; expected a batch"),
        (Net(), (X, X), r"2 example inputs were given in order, and a Net names 1"),
        (Net(), {"x": X[:0]}, r"the example input 'x' is empty, of shape \(0, 6\)"),
        (Net(), {"x": X * float("nan")}, r"the outputs for the inputs x are not finite"),
        (Nothing(), {"x": X}, r"its forward returns no tensor"),
        (nn.Sequential(nn.LazyLinear(5)), X, r"parameters without shapes"),
    ],
)
def test_what_is_no_example_is_one_sentence(model: nn.Module, given: Any, said: str) -> None:
    with pytest.raises(SymmetryError, match=said):
        fusionlab.blueprint(model, given)
