"""Modules of one's own whose code does what layers of libraries do not."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fusionlab
from fusionlab.errors import InputError
from fusionlab.symmetry import Alignment
from fusionlab.symmetry.groups import Permutation
from tests.symmetry.models import generator

HIDDEN = 9


class Attention(nn.Module):
    """Heads that no shape tells the number of."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(12, 36), nn.Linear(12, 12)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in self.qkv(x).chunk(3, -1))
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Net(nn.Module):
    """A hidden layer, between whatever stands around it."""

    def __init__(self, act: Any = torch.relu) -> None:
        super().__init__()
        self.act, self.a, self.b = act, nn.Linear(6, HIDDEN), nn.Linear(HIDDEN, 4)

    def inside(self, x: Tensor) -> Tensor:
        return self.b(self.act(self.a(x)))

    def forward(self, x: Tensor) -> Tensor:
        return self.inside(x)


class Masked(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.inside(x).masked_fill(torch.tensor([True, False, False, True]), -1e9)


class Dropped(Net):
    """A buffer says which units count."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tensor([1.0] * 7 + [0.0, 1.0]))

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x).masked_fill(self.mask == 0, 0.0))


class Bytes(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.inside(x.float() / 255)


class Cast(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.inside(x.to(torch.float32))


class Fourier(Net):
    """A tensor that nobody registered."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.randn(6, 6, generator=generator(5), dtype=torch.float32)

    def forward(self, x: Tensor) -> Tensor:
        return self.inside((x @ self.table).sin())


class Bounded(Net):
    def __init__(self) -> None:
        super().__init__()
        self.high = nn.Parameter(torch.rand(HIDDEN, generator=generator(6)))

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.clamp(self.a(x), max=self.high))


class Swapped(Net):
    """Takes its inputs in another order than an example names them."""

    def forward(self, context: Tensor, x: Tensor) -> Tensor:
        return self.inside(x) + self.inside(2 * context)


NUMBERS = torch.randn(5, 6, generator=generator(1))
WHOLE = torch.randint(0, 256, (5, 6), generator=generator(2))
CASES: dict[str, tuple[type[nn.Module], Any]] = {
    "masked outputs": (Masked, NUMBERS),
    "masked units": (Dropped, NUMBERS),
    "bytes": (Bytes, WHOLE.to(torch.uint8)),
    "a cast": (Cast, WHOLE),
    "a cast of truth values": (Cast, WHOLE > 100),
    "an unregistered tensor": (Fourier, NUMBERS),
    "learned bounds": (Bounded, NUMBERS),
    "inputs by name": (Swapped, {"x": NUMBERS, "context": NUMBERS.flip(0)}),
}


@pytest.mark.parametrize("name", CASES)
def test_hidden_units_are_found_and_move(name: str) -> None:
    """A permutation of them, and a random element of all groups that were found changes no output."""
    kind, example = CASES[name]
    model = kind()
    found = fusionlab.blueprint(model, example)
    assert any(isinstance(space.group, Permutation) and space.group.size == HIDDEN for space in found.spaces.values())
    twin = Alignment.random(found, generator(3)).apply(model)
    inputs = example if isinstance(example, dict) else {"x": example}
    torch.testing.assert_close(twin(**inputs), model(**inputs), rtol=1e-3, atol=1e-3)


def test_numbers_of_heads_make_two_architectures() -> None:
    """One blueprint is not taken for the other's, and models of both are not matched."""
    example = torch.randn(2, 7, 12, generator=generator(1))
    few, many = Attention(2), Attention(4)
    sizes = [{space.group.size for space in fusionlab.blueprint(one, example).spaces.values()} for one in (few, many)]
    assert sizes[0] != sizes[1]
    twin = fusionlab.align([many, Attention(4)], preset="weights")[0]
    torch.testing.assert_close(twin(example), many(example), rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError):
        fusionlab.align([few, many], preset="weights")


def test_functions_that_are_attributes_count() -> None:
    """Signs pass through a tangent alone."""
    groups = [
        {type(space.group).__name__ for space in fusionlab.blueprint(Net(act), NUMBERS).spaces.values()}
        for act in (torch.sigmoid, torch.tanh)
    ]
    assert groups[0] != groups[1]


def test_a_twin_of_inputs_in_another_order_computes_the_same() -> None:
    models = [Swapped(), Swapped()]
    example = {"x": NUMBERS, "context": NUMBERS.flip(0)}
    fusionlab.blueprint(models[0], example)
    twin = fusionlab.align(models, preset="weights")[0]
    torch.testing.assert_close(twin(**example), models[0](**example), rtol=1e-4, atol=1e-5)


def test_weights_that_hooks_compute_are_copied() -> None:
    """As those of weight normalisation are, once a forward has made them."""
    model = nn.Sequential(nn.utils.weight_norm(nn.Linear(6, HIDDEN)), nn.ReLU(), nn.Linear(HIDDEN, 4))
    model(NUMBERS).sum().backward()
    found = fusionlab.blueprint(model, NUMBERS)
    assert any(space.group.size == HIDDEN for space in found.spaces.values())


def test_complex_numbers_are_refused() -> None:
    model = nn.Sequential(nn.Linear(6, 4))
    model.register_buffer("turn", torch.ones(4, dtype=torch.complex64))
    with pytest.raises(InputError, match=r"model 0 of merge holds complex numbers \('turn'\)"):
        fusionlab.merge([model, model])
