"""The smallest modules that show what inference must not get wrong."""

import copy

import pytest
import torch
from torch import Tensor, nn

from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.symmetry.float64 import InFloat64
from fusionlab.symmetry.groups import Permutation, Scale
from fusionlab.symmetry.infer.attempts import EXACT
from fusionlab.symmetry.infer.blueprint import infer
from fusionlab.symmetry.roles import Role
from tests.symmetry.infer.networks.demand import Demand


def described(model: nn.Module, inputs: dict[str, Tensor], seed: int = 0) -> Blueprint:
    return infer(model, inputs, "fault", seed)


def change(model: nn.Module, alignment: Alignment, inputs: dict[str, Tensor]) -> float:
    """How much the outputs of a model in float64 change, relatively; biases and gains are random."""
    model = copy.deepcopy(model).double()
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw, dtype=torch.float64))
    given = {name: x.double() if x.is_floating_point() else x for name, x in inputs.items()}
    before, after = model(**given), alignment.apply(model)(**given)
    return float((before - after).abs().max() / before.abs().max())


class Table(nn.Module):
    """A table looked up on its first and last dimension: what is found stands before what is left."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.down = nn.Parameter(torch.randn(6, 9, 7)), nn.Linear(9, 5)

    def forward(self, first: Tensor, last: Tensor) -> Tensor:
        return self.down(torch.relu(self.table[first, :, last]))


def test_dimensions_between_two_that_are_looked_up_come_last() -> None:
    inputs = {name: torch.tensor([0, 3, 5, 1]) for name in ("first", "last")}
    found = described(Table(), inputs)
    assert sorted(str(space.group) for space in found.spaces.values()) == ["R+(1)", "S(9)"]
    assert change(Table(), Alignment.random(found, torch.Generator().manual_seed(0)), inputs) < EXACT


class Shifted(nn.Module):
    """Two units; zeros are added from the left before the ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 2), nn.Linear(2, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(torch.zeros(2) + self.up(x)))


def test_no_sign_passes_a_relu_behind_a_constant() -> None:
    """Of a few random factors all may be positive; that a ReLU is in between must be known."""
    inputs = {"x": torch.randn(4, 6, generator=torch.Generator().manual_seed(3))}
    for seed in range(8):
        spaces = described(Shifted(), inputs, seed).spaces.values()
        assert {str(space.group) for space in spaces} == {"S(2)", "R+(1)"}


class TwoNames(nn.Module):
    """A layer under two names behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.norm, self.head = nn.Linear(6, 8), nn.RMSNorm(8), nn.Linear(8, 5)
        self.first = nn.Linear(8, 5)
        self.second = self.first

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        return self.head(x) + self.second(self.norm(x))


def test_a_gain_is_folded_into_a_shared_layer_under_all_its_names() -> None:
    inputs = {"x": torch.randn(4, 6, generator=torch.Generator().manual_seed(3))}
    known = described(TwoNames(), inputs).after_folding
    assert known is not None
    assert change(TwoNames(), Alignment.random(known, torch.Generator().manual_seed(1)), inputs) <= EXACT


class ReadByATable(nn.Module):
    """A table that writes, and reads what a norm makes: no gain goes into it without another layer's change."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.up, self.down = nn.Embedding(9, 8), nn.Linear(8, 7), nn.Linear(7, 8, bias=False)
        self.norm = nn.RMSNorm(8)

    def forward(self, ids: Tensor) -> Tensor:
        return self.norm(self.down(torch.tanh(self.up(self.table(ids))))) @ self.table.weight.T


def test_the_bias_of_a_norm_is_a_vector() -> None:
    ids = torch.randint(9, (3, 4), generator=torch.Generator().manual_seed(3))
    model = ReadByATable()
    vectors = {name for name, parameter in model.named_parameters() if parameter.ndim == 1}
    assert {norm.bias for norm in described(model, {"ids": ids}).norms} <= vectors | {None}


class OneBlock(nn.Module):
    """A stream of tokens to which one block adds."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.up, self.down = nn.Embedding(9, 8), nn.Linear(8, 7), nn.Linear(7, 8)
        self.norm, self.head = nn.RMSNorm(8), nn.Linear(8, 5)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        return self.head(x + self.down(torch.tanh(self.up(self.norm(x)))))


def test_a_stream_with_one_block_is_a_residual_stream() -> None:
    ids = torch.randint(9, (3, 4), generator=torch.Generator().manual_seed(3))
    assert Role.RESIDUAL in described(OneBlock(), {"ids": ids}).roles()


class Places(nn.Module):
    """Channels of a convolution behind a ReLU; `how` says how their places are read."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.enter, self.head = nn.Conv1d(3, 7, 3), nn.Linear(28 if how == "each" else 7, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.enter(x))
        return self.head(x.flatten(1) if self.how == "each" else x.amax(-1))


@pytest.mark.parametrize("how", ["each", "largest"])
def test_factors_of_channels_pass_their_places(how: str) -> None:
    inputs = {"x": torch.randn(4, 3, 6, generator=torch.Generator().manual_seed(3))}
    description = described(Places(how), inputs)
    at = frozenset({("enter.weight", 0), ("enter.bias", 0), ("head.weight", 1)})
    assert Demand(Permutation(7), at).is_met(description)
    assert Demand(Scale(1), at, (7,)).is_met(description)


class Experts(nn.Module):
    """Experts of ReLUs in common tensors, weighed by a router."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(6, 3)
        self.up, self.down = nn.Parameter(torch.randn(3, 6, 4)), nn.Parameter(torch.randn(3, 4, 5))

    def forward(self, x: Tensor) -> Tensor:
        inside = torch.relu(torch.einsum("bd,edu->beu", x, self.up))
        return (self.router(x).softmax(-1).unsqueeze(-1) * torch.einsum("beu,euc->bec", inside, self.down)).sum(-2)


def test_a_factor_belongs_to_one_space() -> None:
    """One for each unit of each expert, and none for the expert beside them: elements compose and invert."""
    inputs = {"x": torch.randn(4, 6, generator=torch.Generator().manual_seed(3))}
    description = described(Experts(), inputs)
    assert sorted(str(space.group) for space in description.spaces.values()) == ["R+(1)", "S(3)", "S(4)"]
    alignment = Alignment.random(description, torch.Generator().manual_seed(1))
    nothing = alignment.inverse().compose(alignment)
    for name, space in description.spaces.items():
        torch.testing.assert_close(nothing.element(name), space.group.identity(space.copies))


class InGroups(nn.Module):
    """Channels that a convolution in groups reads as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.groups = nn.Conv1d(2, 12, 1), nn.Conv1d(12, 15, 1, groups=3)
        self.head = nn.Linear(15, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.groups(self.enter(x))).mean(-1))


def test_a_space_that_indexes_others_comes_before_them() -> None:
    """As `Blueprint.spaces` says; else an inverse moves copies back before it knows where to."""
    inputs = {"x": torch.randn(4, 2, 6, generator=torch.Generator().manual_seed(3))}
    description = described(InGroups(), inputs)
    order = list(description.spaces)
    assert any(space.index for space in description.spaces.values())
    for space in description.spaces.values():
        assert all(order.index(outer) < order.index(space.name) for outer in space.index), order
    alignment = Alignment.random(description, torch.Generator().manual_seed(1))
    state = InGroups().double().state_dict()
    back = alignment.inverse().apply(alignment.apply(state))
    for name, tensor in state.items():
        torch.testing.assert_close(back[name], tensor)


class Windows(nn.Module):
    """Windows of an image read at once, and what is made of them laid where they were."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.inside = nn.Conv2d(3, 5, 1), nn.Linear(5 * 9, 7 * 9)
        self.leave = nn.Conv2d(7, 4, 1)

    def forward(self, image: Tensor) -> Tensor:
        windows = nn.functional.unfold(torch.relu(self.enter(image)), 3, padding=1)
        made = self.inside(windows.transpose(1, 2)).transpose(1, 2)
        return self.leave(nn.functional.fold(made, image.shape[-2:], 3, padding=1))


def test_channels_run_through_windows() -> None:
    """Permuted and scaled: a basis around the places of a window has no name."""
    inputs = {"image": torch.randn(2, 3, 6, 5, generator=torch.Generator().manual_seed(3))}
    found = described(Windows(), inputs)
    assert sorted(str(space.group) for space in found.spaces.values()) == ["R*(1)", "R+(1)", "S(5)", "S(7)"]
    assert change(Windows(), Alignment.random(found, torch.Generator().manual_seed(0)), inputs) < EXACT


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM], ids=lambda kind: kind.__name__)
def test_gates_of_a_recurrent_layer_share_its_units(kind: type[nn.Module]) -> None:
    """Up to four segments of each fused weight, cut at every step; their signs pass the tanh, from zeros on."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside, self.head = kind(6, 8, batch_first=True), nn.Linear(8, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.inside(x)[0])

    inputs = {"x": torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(3))}
    found = described(Recurrent(), inputs)
    assert {str(space.group) for space in found.spaces.values()} == {"S(8)", "Z2(1)"}
    assert found.untouched() == ("head.bias",)
    assert change(Recurrent(), Alignment.random(found, torch.Generator().manual_seed(0)), inputs) < EXACT


class KindsOfHeads(nn.Module):
    """Two heads of one kind and three of another, laid one after the other and read together."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.leave = nn.Linear(6, 2 * 4), nn.Linear(6, 3 * 4), nn.Linear(20, 5)

    def forward(self, x: Tensor) -> Tensor:
        heads = [self.first(x).view(-1, 2, 4), self.second(x).view(-1, 3, 4)]
        return self.leave(torch.tanh(torch.cat(heads, 1)).view(-1, 20))


def test_kinds_of_heads_are_permuted_among_themselves() -> None:
    inputs = {"x": torch.randn(3, 6, generator=torch.Generator().manual_seed(3))}
    found = described(KindsOfHeads(), inputs)
    assert {"S(2)", "S(3)", "S(4)"} <= {str(space.group) for space in found.spaces.values()}
    assert change(KindsOfHeads(), Alignment.random(found, torch.Generator().manual_seed(0)), inputs) < EXACT


class Triangular(nn.Module):
    """Each token's units corrected by those before it, as in a gated delta rule."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.key, self.down = nn.Linear(6, 8), nn.Linear(6, 7), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        keys = self.key(x)
        system = (keys @ keys.transpose(-1, -2)).tril(-1)
        return self.down(torch.linalg.solve_triangular(system, self.up(x), upper=False, unitriangular=True))


def test_a_triangular_system_is_linear_in_its_right_hand_side() -> None:
    inputs = {"x": torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(3))}
    found = described(Triangular(), inputs)
    assert {str(space.group) for space in found.spaces.values()} == {"GL(8)", "O(7)"}
    assert found.untouched() == ("down.bias",)
    assert change(Triangular(), Alignment.random(found, torch.Generator().manual_seed(0)), inputs) < EXACT


def test_the_least_number_of_float64_fits() -> None:
    """XGLM fills its masks with it, in a tensor whose type it leaves open."""
    with InFloat64():
        least = torch.full((), torch.finfo(torch.float64).min)
        half = torch.full((2,), 0.5)
        infinite = torch.full((), -torch.inf)
    assert (least.dtype, float(least)) == (torch.float64, torch.finfo(torch.float64).min)
    assert (half.dtype, infinite.dtype) == (torch.float32, torch.float32)
