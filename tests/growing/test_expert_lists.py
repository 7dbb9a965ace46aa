"""Experts that are modules of a list are grown and shrunk as those in one tensor, their number too."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import fusionlab
from fusionlab.errors import InputError
from fusionlab.growing import grown, shrunk
from tests.parts import one_in
from tests.symmetry.infer.expert_lists import Chosen, Expert
from tests.symmetry.models import randomize

from .test_growth import apart

INPUTS = {"x": torch.randn(2, 60, 5, generator=torch.Generator().manual_seed(0))}


class Mixture(nn.Module):
    """Two experts for each token, beside a stream that a norm and the head read."""

    def __init__(self, width: int, units: int, experts: int, normed: bool = False, bias: bool = True) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(5, width), nn.LayerNorm(width)
        self.mixture = Chosen(lambda: Expert(torch.relu, normed, width, units), bias, experts, width)
        self.last = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.last(x + self.mixture(self.norm(x).flatten(0, 1)).view_as(x))


def mixture(width: int, units: int, experts: int, seed: int = 0, **shape: bool) -> nn.Module:
    model = randomize(Mixture(width, units, experts, **shape), seed)
    fusionlab.blueprint(model, INPUTS)
    return model


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(
    ("width", "units", "experts"),
    one_in(3, [(6, 14, 3), (6, 9, 5), (12, 9, 3), (18, 13, 6)]),
    ids=one_in(3, ["units", "experts", "width", "all"]),
)
def test_the_function_stays(normed: bool, width: int, units: int, experts: int) -> None:
    small, large = mixture(6, 9, 3, normed=normed), mixture(width, units, experts, 1, normed=normed)
    growth = grown(small, large)
    assert apart(growth.model, small) < 1e-9
    # More experts are no more layers.
    assert growth.placements == ()
    wanted = {"residual": (6, width), "ffn": (9, units), "experts": (3, experts)}
    assert growth.sizes == {role: ((a, a), (b, b)) for role, (a, b) in wanted.items() if a != b}
    assert apart(grown(small, large, fill=True).model, small) < 1e-9


def test_a_stream_read_without_a_norm_keeps_its_mean() -> None:
    """By the head: a width that is no multiple needs the mean over features in its own place."""
    small = mixture(6, 9, 3)
    assert apart(grown(small, mixture(10, 9, 3, 1)).model, small) < 1e-9


@pytest.mark.parametrize(("width", "units", "experts"), [(6, 14, 5), (10, 9, 3)])
def test_what_grew_is_cut_off_again(width: int, units: int, experts: int) -> None:
    small = mixture(6, 9, 3)
    large = grown(small, mixture(width, units, experts, 1)).model
    fusionlab.blueprint(large, INPUTS)
    shrinkage = shrunk(large, small)
    assert shrinkage.differs < 1e-9
    assert apart(shrinkage.model, small) < 1e-9
    assert {n: t.shape for n, t in shrinkage.model.state_dict().items()} == {
        n: t.shape for n, t in small.state_dict().items()
    }


def test_experts_that_nothing_holds_down_are_refused() -> None:
    with pytest.raises(InputError, match="unless a router has biases"):
        grown(mixture(6, 9, 3, bias=False), mixture(6, 9, 4, 1, bias=False))


def test_a_mixture_and_its_grown_twin_are_one_function() -> None:
    small, large = mixture(6, 9, 3), mixture(12, 13, 5, 1)
    twin = grown(small, large).model
    fusionlab.blueprint(twin, INPUTS)
    with pytest.warns(UserWarning, match="was grown"):
        merged = fusionlab.fuse([small, twin], preset="weights")
    assert apart(merged, small) < 1e-5
