"""Modules in which something breaks a symmetry: the smaller group is found, and nothing that does not hold."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.symmetry.infer.broken import Groups, found, groups, linear
from tests.symmetry.infer.networks.demand import places_of
from tests.symmetry.infer.networks.parts import turned

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


# Signs go with what is permuted, but for gains.
STREAM = linear("enter", 0) | {("up.weight", 1)} | linear("down", 0) | linear("leave", 1)
UNITS = linear("up", 0) | linear("down", 1)
INNER: Groups = {("S(7)", ()): UNITS, ("Z2(1)", (7,)): UNITS}
PERMUTED: Groups = INNER | {("S(8)", ()): STREAM | {("norm.weight", 0)}}


def test_a_stream_that_nothing_breaks_may_be_rotated() -> None:
    """So that what follows is about what breaks it."""
    description = found(Stream("nothing"), 6)
    assert groups(description) == PERMUTED | {("Z2(1)", (8,)): STREAM}
    assert description.after_folding is not None
    assert groups(description.after_folding) == INNER | {("O(8)", ()): STREAM}


GROUPS_THROUGH_GAIN = {"relu": "R+(1)", "function": "R*(1)"}


@pytest.mark.parametrize("how", ["relu", "function", "gain"])
def test_a_stream_with_a_function_or_gains_that_are_seen_is_only_permuted(how: str) -> None:
    description = found(Stream(how), 6)
    # A square does not see signs, and they move no gain; positive factors of a gain pass a ReLU.
    signs: Groups = {("Z2(1)", (8,)): STREAM}
    through_gain = {("norm.weight", 0), ("up.weight", 1)}
    factors: dict[str, Groups] = {how: {(group, (8,)): through_gain} for how, group in GROUPS_THROUGH_GAIN.items()}
    assert groups(description) == PERMUTED | (factors | {"gain": signs})[how]
    assert description.after_folding is None


class Channels(nn.Module):
    """Channels behind batch norms; `how` says what reads them."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.enter, self.leave, self.how = nn.Conv1d(3, 7, 1), nn.Conv1d(7, 5, 1), how
        self.norm, self.other = nn.BatchNorm1d(7), nn.BatchNorm1d(7) if how in ("two", "sum") else None
        self.beside = nn.Conv1d(7 if how == "two" else 3, 5 if how == "two" else 7, 1) if self.other else None

    def forward(self, x: Tensor) -> Tensor:
        found = self.enter(x)
        if self.how == "sum" and self.beside is not None and self.other is not None:
            return self.leave(torch.relu(self.norm(found) + self.other(self.beside(x))))
        function = {"relu6": functional.relu6, "gelu": functional.gelu}.get(self.how, torch.relu)
        out = self.leave(function(self.norm(found)))
        if self.how == "two" and self.beside is not None and self.other is not None:
            out = out + self.beside(torch.relu(self.other(found)))
        return out


ENTER = linear("enter", 0) | {(f"norm.{name}", 0) for name in ("weight", "bias", "running_mean", "running_var")}
BESIDE = {(place.replace("enter", "beside").replace("norm", "other"), dim) for place, dim in ENTER}
TAKEN_UP = {("norm.weight", 0), ("norm.bias", 0), ("leave.weight", 1)}
NORMED: dict[str, Groups] = {
    "relu": {("S(7)", ()): ENTER | linear("leave", 1), ("R+(1)", (7,)): TAKEN_UP},
    "relu6": {("S(7)", ()): ENTER | linear("leave", 1)},
    "gelu": {("S(7)", ()): ENTER | linear("leave", 1)},
    # As where a residual network's branches meet.
    "sum": {
        ("S(7)", ()): ENTER | BESIDE | linear("leave", 1),
        ("R+(1)", (7,)): TAKEN_UP | {("other.weight", 0), ("other.bias", 0)},
    },
    # Each norm's gain has factors of its own, as in a DenseNet.
    "two": {
        ("S(7)", ()): ENTER | {(p, d) for p, d in BESIDE if "other" in p} | linear("leave", 1) | linear("beside", 1),
        ("R+(1)", (7,)): TAKEN_UP,
        ("R+(1) again", (7,)): {("other.weight", 0), ("other.bias", 0), ("beside.weight", 1)},
    },
}


@pytest.mark.parametrize("how", NORMED)
def test_factors_behind_a_batch_norm_go_from_its_gain_and_bias_to_what_reads_it(how: str) -> None:
    """What writes to it, and its statistics, keep theirs: a constant beside the variance sees them."""
    assert groups(found(Channels(how), 3, 4)) == NORMED[how]


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


# --- what nothing reads ----------------------------------------------------------------------------------------------


class Unread(nn.Module):
    """Parameters that nothing depends on, beside some that count."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 7), nn.Linear(7, 5)
        self.unused, self.cancelled = nn.Linear(6, 7), nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.tanh(self.up(x + self.cancelled - self.cancelled)))


def test_parameters_that_nothing_depends_on_are_told_and_left_alone() -> None:
    description = found(Unread(), 6)
    assert groups(description) == INNER
    (note,) = (note for note in description.notes if "do not depend" in note)
    assert all(name in note for name in ("unused.weight", "unused.bias", "cancelled"))
    assert "up" not in note
