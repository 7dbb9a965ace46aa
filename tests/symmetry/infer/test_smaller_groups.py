"""Modules in which something breaks a symmetry: the smaller group is found, and nothing that does not hold."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.symmetry.infer.blueprint import infer
from fusionlab.symmetry.infer.search import EXACT
from fusionlab.symmetry.infer.trace import generic, trace
from tests.symmetry.infer.networks.demand import places_of, told
from tests.symmetry.infer.networks.parts import turned

# Everything that is found: the group, how many copies, where it acts.
Groups = dict[tuple[str, tuple[int, ...]], set[tuple[str, int]]]


def linear(name: str, dim: int) -> set[tuple[str, int]]:
    """Where a layer with a bias writes (0) or reads (1)."""
    return {(f"{name}.weight", dim)} | ({(f"{name}.bias", 0)} if dim == 0 else set())


UNITS = linear("up", 0) | linear("down", 1)
PERMUTED: Groups = {("S(7)", ()): UNITS}
SCALED: Groups = PERMUTED | {("R+(1)", (7,)): UNITS}
# All units but one.
OTHERS: Groups = {("S(6)", ()): UNITS}


class Between(nn.Module):
    """Seven units with something in between: (batch, width) to (batch, 5)."""

    def __init__(self, function: Callable[[Tensor], Tensor], width: int = 6) -> None:
        super().__init__()
        self.up, self.down, self.function = nn.Linear(width, 7), nn.Linear(7, 5), function

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.function(self.up(x)))


def groups(description: Blueprint) -> Groups:
    """What a blueprint says; no two spaces of these modules are alike in group and copies."""
    found = [((str(s.group), s.copies), places_of(description, s.name)) for s in description.spaces.values()]
    assert len(dict(found)) == len(found), told(description)
    return dict(found)


def exact(model: nn.Module, description: Blueprint, inputs: dict[str, Tensor]) -> None:
    """Random elements leave the outputs of the module itself, on parameters and inputs that nobody saw."""
    model, generator = model.double(), torch.Generator().manual_seed(7)
    start = {name: generic(tensor, generator) for name, tensor in model.state_dict().items()}
    drawn = {n: torch.randn(x.shape, generator=generator, dtype=torch.float64) for n, x in inputs.items()}

    def output(state: dict[str, Tensor]) -> Tensor:
        model.load_state_dict(state)
        return model(**drawn).detach()

    before = output(start)
    for known in (description, description.after_folding):
        if known is not None:
            alignment = Alignment.random(known, torch.Generator().manual_seed(8))
            error = (output(alignment.apply(start)) - before).abs().max() / before.abs().max()
            assert error <= EXACT, f"changed by {error:.1e}\n{told(description)}"


def found(model: nn.Module, *shape: int, batch: int = 4, seed: int = 0) -> Blueprint:
    """The blueprint of a module that reads one tensor ``x``, which is exact."""
    inputs = {"x": torch.randn(batch, *shape, generator=torch.Generator().manual_seed(3))}
    description = infer(model, inputs, "broken", seed)
    exact(model, description, inputs)
    return description


def written(value: float, stop: int) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        x = torch.tanh(x)
        x[:, :stop] = value
        return x

    return function


def marked(x: Tensor) -> Tensor:
    x = torch.tanh(x)
    x[:, 2].add_(1.0)
    return x


MASK = torch.tensor([1.0, 1, 0, 1, 1, 0, 1])
ORDER = torch.tensor([3, 1, 0, 2, 6, 5, 4])


@dataclass(frozen=True)
class Row:
    """What stands between the layers, what is left, and what else holds but need not be found."""

    name: str
    function: Callable[[Tensor], Tensor]
    left: Groups
    may: Groups = field(default_factory=dict)


ROWS = (
    Row("nothing", lambda x: x, {("GL(7)", ()): UNITS}),
    Row("tanh", torch.tanh, PERMUTED),
    Row("relu", torch.relu, SCALED),
    Row("leaky relu", functional.leaky_relu, SCALED),
    Row("absolute values", torch.abs, SCALED),
    Row("larger than zero", lambda x: torch.maximum(x, torch.zeros_like(x)), SCALED),
    Row("relu behind a shift", lambda x: torch.relu(x + 1.0), PERMUTED),
    Row("relu up to six", functional.relu6, PERMUTED),
    Row("relu squared", lambda x: torch.relu(x).square(), PERMUTED),
    Row("a number for all", lambda x: 3 * torch.tanh(x) + 1, PERMUTED),
    Row("the same mask for all", lambda x: torch.tanh(x) * torch.ones(7), PERMUTED),
    Row("a mask over units", lambda x: torch.tanh(x) * MASK, {}),
    Row("a mask over units that are linear", lambda x: x * (MASK + 1), {("R*(7)", ()): UNITS}),
    Row("a shift by unit", lambda x: torch.relu(x + MASK), {}),
    Row("values that depend on an index", lambda x: torch.tanh(x) * torch.arange(7), {}),
    Row("units in a fixed order", lambda x: torch.relu(x)[:, ORDER], {}),
    Row("units in reverse", lambda x: torch.tanh(x).flip(-1), {}),
    Row("units moved by one", lambda x: torch.tanh(x).roll(1, -1), {}),
    Row("running sums", lambda x: torch.tanh(x).cumsum(-1), {}),
    # The order is lost, so that what writes may be permuted by itself.
    Row("units sorted", lambda x: torch.tanh(x).sort(-1).values, {("S(7)", ()): linear("up", 0)}),
    Row("sums over units", lambda x: torch.tanh(x) / torch.tanh(x).abs().sum(-1, keepdim=True), PERMUTED),
    Row("softmax over units", lambda x: x.softmax(-1), PERMUTED),
    Row("norms of units", lambda x: x / x.norm(dim=-1, keepdim=True), {("O(7)", ()): UNITS}),
    Row("centred units", lambda x: functional.layer_norm(x, (7,)), {("O1(7)", ()): UNITS}),
    Row("a relu behind a norm", lambda x: torch.relu(functional.rms_norm(x, (7,))), PERMUTED),
    Row("a norm behind a relu", lambda x: functional.rms_norm(torch.relu(x), (7,)), PERMUTED),
    Row("the largest unit", lambda x: torch.tanh(x) * (x >= x.amax(-1, keepdim=True)), PERMUTED),
    Row("one hot", lambda x: functional.one_hot(x.argmax(-1), 7).to(x.dtype), {}, may=PERMUTED),
    # Nothing depends on what wrote it.
    Row("all written over", written(0.5, 7), {}, may={("S(7)", ()): linear("up", 0)}),
    Row("one written over", written(0.5, 1), OTHERS),
    Row("one added to in place", marked, {}, may=OTHERS),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_what_stands_between_two_layers(row: Row) -> None:
    description = groups(found(Between(row.function), 6))
    assert description.items() >= row.left.items()
    assert description.items() <= (row.left | row.may).items()


# --- what is read elsewhere ------------------------------------------------------------------------------------------


class Twice(nn.Module):
    """One matrix between three bases."""

    def __init__(self, is_turned: bool) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(6, 7), nn.Linear(7, 5)
        self.both, self.is_turned = nn.Parameter(torch.randn(7, 7)), is_turned

    def forward(self, x: Tensor) -> Tensor:
        x = functional.gelu(torch.tanh(self.enter(x)) @ self.both)
        return self.leave(torch.tanh(x @ (self.both.T if self.is_turned else self.both)))


def test_a_matrix_used_twice_in_a_row_has_one_basis_for_all() -> None:
    """From the first to the second and from the second to the third: all three are one."""
    everywhere = linear("enter", 0) | linear("leave", 1) | {("both", 0), ("both", 1)}
    assert groups(found(Twice(is_turned=False), 6)) == {("S(7)", ()): everywhere}


def test_a_matrix_used_there_and_back_has_two_bases() -> None:
    description = found(Twice(is_turned=True), 6)
    places = [places_of(description, s.name) for s in description.spaces.values() if str(s.group) == "S(7)"]
    outer = linear("enter", 0) | linear("leave", 1) | {("both", 0)}
    assert sorted(places, key=len) == [{("both", 1)}, outer] or places == [outer]


class Shared(nn.Module):
    """A vector that two layers add; `how` says what else reads it."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.one, self.two, self.leave = nn.Linear(6, 7, bias=False), nn.Linear(7, 7, bias=False), nn.Linear(7, 5)
        self.vector, self.how = nn.Parameter(torch.randn(7)), how

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.one(x) + self.vector)
        if self.how == "outputs":
            return torch.cat([self.leave(x), x.new_ones(len(x), 1) * self.vector], -1)
        x = functional.gelu(self.two(x) + (self.vector if self.how == "both" else 0))
        return self.leave(x)


def test_a_vector_added_in_two_places_ties_them() -> None:
    tied = {("one.weight", 0), ("vector", 0), ("two.weight", 0), ("two.weight", 1)} | linear("leave", 1)
    assert groups(found(Shared("both"), 6)) == {("S(7)", ()): tied}


def test_a_vector_that_is_returned_holds_its_units_in_place() -> None:
    description = found(Shared("outputs"), 6)
    assert groups(description) == {}


class Stream(nn.Module):
    """A stream, read through a norm; `how` says what is wrong."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(6, 8), nn.Linear(8, 5)
        self.up, self.down, self.norm = nn.Linear(8, 7), nn.Linear(7, 8), nn.RMSNorm(8)
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        read = self.norm(x)
        if self.how == "relu":
            read = torch.relu(read)
        x = x + self.down(torch.tanh(self.up(read)))
        if self.how == "function":
            x = functional.gelu(x)
        out = self.leave(x)
        if self.how == "gain":
            # What the gains are is seen beside what they multiply.
            out = out * self.norm.weight.square().sum()
        return out


STREAM = linear("enter", 0) | {("up.weight", 1)} | linear("down", 0) | linear("leave", 1)
INNER: Groups = {("S(7)", ()): linear("up", 0) | linear("down", 1)}


def test_a_stream_that_nothing_breaks_may_be_rotated() -> None:
    """So that what follows is about what breaks it."""
    description = found(Stream("nothing"), 6)
    assert groups(description) == INNER | {("S(8)", ()): STREAM | {("norm.weight", 0)}}
    assert description.after_folding is not None
    assert groups(description.after_folding) == INNER | {("O(8)", ()): STREAM}


@pytest.mark.parametrize("how", ["relu", "function", "gain"])
def test_a_stream_with_a_function_or_gains_that_are_seen_is_only_permuted(how: str) -> None:
    description = found(Stream(how), 6)
    assert groups(description) == INNER | {("S(8)", ()): STREAM | {("norm.weight", 0)}}
    assert description.after_folding is None


# --- heads -----------------------------------------------------------------------------------------------------------


class Heads(nn.Module):
    """Attention of three heads; `how` says what tells them, or their features, apart."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = nn.Linear(6, 12), nn.Linear(6, 12), nn.Linear(6, 15), nn.Linear(15, 5)
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (layer(x).unflatten(-1, (3, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        if self.how == "a relu on queries and keys":
            q, k = torch.relu(q), torch.relu(k)
        scores = q @ k.mT
        if self.how == "a slope for each head":
            slopes = torch.tensor([1.0, 0.5, 0.25])[:, None, None]
            scores = scores - slopes * torch.arange(x.shape[1]).float()
        mixed = scores.softmax(-1) @ v
        if self.how == "a relu on values":
            mixed = torch.relu(mixed)
        return self.o(mixed.transpose(1, 2).flatten(2))


QK, VO = linear("q", 0) | linear("k", 0), linear("v", 0) | linear("o", 1)
BY_HEAD: dict[str, Groups] = {
    "nothing": {("S(3)", ()): QK | VO, ("GL(4)", (3,)): QK, ("GL(5)", (3,)): VO},
    "a relu on queries and keys": {
        ("S(3)", ()): QK | VO,
        ("S(4)", (3,)): QK,
        ("R+(1)", (3, 4)): QK,
        ("GL(5)", (3,)): VO,
    },
    "a relu on values": {
        ("S(3)", ()): QK | VO,
        ("GL(4)", (3,)): QK,
        ("S(5)", (3,)): VO,
        ("R+(1)", (3, 5)): VO,
    },
}


@pytest.mark.parametrize("how", BY_HEAD)
def test_a_relu_inside_of_heads_leaves_orders_and_factors(how: str) -> None:
    assert groups(found(Heads(how), 4, 6)) == BY_HEAD[how]


def test_heads_with_slopes_of_their_own_stay_and_keep_their_bases() -> None:
    """As in ALiBi (Press et al., 2022): three bases of queries and keys, three of values, and no permutation."""
    spaces = found(Heads("a slope for each head"), 4, 6).spaces.values()
    assert sorted(str(space.group) for space in spaces) == ["GL(4)"] * 3 + ["GL(5)"] * 3


class Turned(nn.Module):
    """Queries and keys turned by their places, then a ReLU that sees each coordinate."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        q, k = (torch.relu(turned(layer(x), interleaved=False)) for layer in (self.q, self.k))
        return (q @ k.mT).softmax(-1) @ self.v(x)


def test_a_relu_behind_rotary_positions_leaves_no_rotation() -> None:
    """A positive factor for each plane still holds."""
    assert groups(found(Turned(), 4, 6)) == {("R+(4)", ()): linear("q", 0) | linear("k", 0)}


# --- what one batch does not show ------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [torch.relu, functional.leaky_relu, torch.abs, functional.relu6], ids=lambda f: f.__name__)
def test_relus_that_are_all_active_are_still_relus(function: Callable[[Tensor], Tensor]) -> None:
    """On this batch the module is linear, so that every matrix passes the test of the traced graph."""
    model = Between(function, width=9)
    state = trace(model, {"x": torch.randn(4, 9)}, seed=0).state
    wanted = 1 + torch.rand(4, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    weight, bias = state["up.weight"], state["up.bias"]
    inputs = {"x": torch.linalg.lstsq(weight, (wanted - bias).T).solution.T}
    torch.testing.assert_close(functional.linear(inputs["x"], weight, bias), wanted)
    description = infer(model, inputs, "active", seed=0)
    assert groups(description) == (PERMUTED if function is functional.relu6 else SCALED)


class Unread(nn.Module):
    """Parameters that nothing depends on, beside some that count."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Between(torch.tanh)
        self.unused, self.cancelled = nn.Linear(6, 7), nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x + self.cancelled - self.cancelled)


def test_parameters_that_nothing_depends_on_are_told_and_left_alone() -> None:
    description = found(Unread(), 6)
    assert groups(description) == {("S(7)", ()): {(f"inner.{name}", dim) for name, dim in UNITS}}
    (note,) = (note for note in description.notes if "do not depend" in note)
    assert all(name in note for name in ("unused.weight", "unused.bias", "cancelled"))
    assert "inner" not in note
