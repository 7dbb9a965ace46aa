"""Folding and clearing of biases as they are inferred: of which norms, into what, and where they would be noticed."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.symmetry.biases import clear_biases
from fusionlab.symmetry.blueprint import Norm, Reader
from fusionlab.symmetry.folding import fold
from fusionlab.symmetry.infer.attempts import EXACT
from fusionlab.symmetry.infer.blueprint import infer
from tests.symmetry.infer.networks.texts import WrittenOut

LENGTH, WIDTH = 5, 6


def generic(model: nn.Module) -> nn.Module:
    model, draw = copy.deepcopy(model).double(), torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw, dtype=torch.float64))
    return model


def change(model: nn.Module, state: dict[str, Tensor]) -> float:
    """How much other parameters change the outputs on inputs that nobody saw, relatively."""
    twin = copy.deepcopy(model)
    twin.load_state_dict(state)
    x = torch.randn(3, LENGTH, WIDTH, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    return float((model(x) - twin(x)).abs().max() / model(x).abs().max())


def described(model: nn.Module) -> Blueprint:
    return infer(model, {"x": torch.randn(3, LENGTH, WIDTH, generator=torch.Generator().manual_seed(3))}, "gauges")


# --- folding ---------------------------------------------------------------------------------------------------------


class Normed(nn.Module):
    """A stream read through a norm by two layers, one of them padded with zeros if `is_padded`."""

    def __init__(self, norm: nn.Module, is_padded: bool = False) -> None:
        super().__init__()
        self.enter, self.norm, self.is_padded = nn.Linear(WIDTH, 8), norm, is_padded
        self.up, self.other, self.down = nn.Linear(8, 7), nn.Linear(8, 7), nn.Linear(7, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        read = self.norm(x)
        if self.is_padded:
            read = nn.functional.pad(read, (0, 0, 1, 1))[:, 1 : x.shape[1] + 1]
        return self.head(x + self.down(torch.tanh(self.up(read)) * self.other(read)))


READERS = {("up.weight", 1), ("other.weight", 1)}
NORMS = {
    "layer": (nn.LayerNorm(8), "norm.bias", 0.0, "O1(8)"),
    "layer without bias": (nn.LayerNorm(8, bias=False), None, 0.0, "O1(8)"),
    "layer written out": (WrittenOut("layer written out", 8), "norm.bias", 0.0, "O1(8)"),
    "rms": (nn.RMSNorm(8), None, 0.0, "O(8)"),
    "one and more": (WrittenOut("rms of one and more", 8), None, 1.0, "O(8)"),
}


@pytest.mark.parametrize("kind", NORMS)
def test_a_norm_is_folded_into_what_reads_it(kind: str) -> None:
    """Gains become one, where they are stored as differences zero; a random rotation then leaves the outputs."""
    norm, bias, offset, group = NORMS[kind]
    model = generic(Normed(norm))
    description = described(model)
    (found,) = description.norms
    assert (found.weight, found.bias, found.offset) == ("norm.weight", bias, offset)
    assert {(reader.weight, reader.dim) for reader in found.readers} == READERS
    after = description.after_folding
    assert after is not None
    assert group in {str(space.group) for space in after.spaces.values()}
    state = fold(model.state_dict(), after)
    assert state["norm.weight"].tolist() == [1 - offset] * 8
    assert change(model, state) <= EXACT
    assert change(model, Alignment.random(after, torch.Generator().manual_seed(1)).apply(state)) <= EXACT
    again = fold(state, after)
    for name, tensor in state.items():
        torch.testing.assert_close(again[name], tensor)


def test_folding_without_the_offset_would_be_noticed() -> None:
    """So that the test before this one can fail."""
    model = generic(Normed(WrittenOut("rms of one and more", 8)))
    norm = Norm("norm.weight", None, tuple(Reader(*reader) for reader in sorted(READERS)))
    assert change(model, fold(model.state_dict(), Blueprint("", {}, {}, norms=(norm,)))) > 1e-3


# --- biases ----------------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Two heads; `how` says what the weights of the values add up to, or what else reads the keys."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(6, 10), nn.Linear(10, 6)
        self.how, self.sinks, self.places = how, nn.Parameter(torch.randn(2)), nn.Parameter(torch.randn(2, LENGTH, 4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (layer(x).unflatten(-1, (2, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        scores = q @ k.mT / math.sqrt(4)
        if self.how == "sinks":
            sinks = self.sinks[:, None, None].expand(len(x), 2, x.shape[1], 1)
            weights = torch.cat([scores, sinks], -1).softmax(-1)[..., :-1]
        elif self.how == "gates":
            weights = scores.softmax(-1) * torch.sigmoid(self.sinks)[:, None, None]
        elif self.how == "keys read by places":
            weights = (scores + (self.places @ k.mT).mT).softmax(-1)
        else:
            weights = scores.softmax(-1)
        return self.o((weights @ v).transpose(1, 2).flatten(2))


# By what is special, the roles of spaces whose biases must stay.
SEEN = {
    "nothing": set[str](),
    "sinks": {"attention.qk", "attention.vo"},
    "gates": {"attention.vo"},
    "keys read by places": {"attention.qk"},
}


@pytest.mark.parametrize("how", SEEN)
def test_biases_stay_where_they_are_seen_and_go_where_not(how: str) -> None:
    """A sink takes part of the weight (Xiao et al., 2024), so that neither keys' nor values' biases vanish."""
    model = generic(Attention(how))
    description = described(model)
    seen = {str(description.spaces[name].role) for name in description.seen_key_biases}
    assert seen == SEEN[how]
    state = clear_biases(model.state_dict(), description)
    assert change(model, state) <= EXACT
    assert bool(state["k.bias"].any()) == ("attention.qk" in seen)
    assert bool(state["v.bias"].any()) == ("attention.vo" in seen)
    unbiased = description.without_biases()
    assert (
        change(model, Alignment.random(unbiased, torch.Generator().manual_seed(1)).apply(model.state_dict())) <= EXACT
    )


@pytest.mark.parametrize("how", [how for how, seen in SEEN.items() if seen])
def test_clearing_biases_that_are_seen_would_be_noticed(how: str) -> None:
    """So that the test before this one can fail."""
    model = generic(Attention(how))
    description = described(model)
    blind = Blueprint("", description.spaces, description.parameters, biases=description.biases)
    state = clear_biases(model.state_dict(), blind)
    assert not bool(state["k.bias"].any() or state["v.bias"].any())
    assert change(model, state) > 1e-3
