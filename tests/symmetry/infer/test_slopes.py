"""What derivatives say that outputs depend on, they depend on; what they do not, is left to be tried."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn

from fusionlab.symmetry.infer import blueprint as reading
from fusionlab.symmetry.infer.blueprint import infer
from fusionlab.symmetry.infer.slopes import Slopes
from fusionlab.symmetry.infer.trace import Traced, TraceError, trace

INPUTS = {"x": torch.randn(4, 6, generator=torch.Generator().manual_seed(0))}


class Centred(nn.Module):
    """A layer whose mean a norm subtracts, and a parameter that is multiplied by zero."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.norm, self.leave = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3)
        self.silent = nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(torch.tanh(self.norm(self.enter(x))) + 0.0 * self.silent)


def test_derivatives_say_what_differences_say() -> None:
    """Of every parameter, and of a constant added along each dimension: here nothing is flat by chance."""
    traced = trace(Centred(), INPUTS)
    slopes, expected = Slopes(traced, traced.state), traced(traced.state)
    draw = torch.Generator().manual_seed(1)

    def changes(name: str, shape: list[int]) -> bool:
        moved = traced.state[name] + torch.rand(shape, generator=draw, dtype=torch.float64)
        return float((traced({**traced.state, name: moved}) - expected).abs().max()) > 1e-9

    seen = {name: slopes.is_seen(name) for name in traced.state}
    assert seen == {name: changes(name, list(x.shape)) for name, x in traced.state.items()}
    assert [name for name, is_seen in seen.items() if not is_seen] == ["silent"]
    for name, x in traced.state.items():
        for dim in range(x.ndim):
            shape = [1 if d == dim else size for d, size in enumerate(x.shape)]
            assert slopes.is_seen(name, dim) == changes(name, shape), (name, dim)
    assert not slopes.is_seen("enter.weight", 0)
    assert not slopes.is_seen("enter.bias", 0)
    assert not slopes.is_seen("nothing is called so")


class Rounded(nn.Module):
    """Steps, which have no slope."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        return (10 * self.layer(x)).round()


def test_what_is_flat_is_not_said_to_be_seen() -> None:
    traced = trace(Rounded(), INPUTS)
    assert not Slopes(traced, traced.state).is_seen("layer.weight")


class Normed(nn.Module):
    """A norm of batches, whose running statistics PyTorch has no derivative by, and units that may all be dead."""

    def __init__(self, units: int, shift: float) -> None:
        super().__init__()
        self.enter, self.norm, self.leave = nn.Linear(6, units), nn.BatchNorm1d(units), nn.Linear(units, 3)
        self.rest, self.shift = nn.Linear(6, 3), shift

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(x) + self.leave(torch.relu(self.norm(self.enter(x)) + self.shift))


def test_derivatives_beside_running_statistics() -> None:
    """By all else there are some: a batch norm's own statistics alone are left to be tried."""
    traced = trace(Normed(5, 9.0).eval(), INPUTS)
    slopes = Slopes(traced, traced.state)
    assert {name for name in traced.state if not slopes.is_seen(name)} == {"norm.running_mean", "norm.running_var"}
    assert slopes.flat() == frozenset()


def test_matrices_that_show_nothing() -> None:
    """Where units are dead; where nothing has a derivative at all nothing is said."""
    traced = trace(Normed(5, -9.0).eval(), INPUTS)
    assert Slopes(traced, traced.state).flat() == {"enter.weight", "leave.weight"}
    without = trace(Rounded(), INPUTS)
    known = Slopes(without, without.state)
    assert known.flat() == {"layer.weight"}
    known.__dict__["_largest"] = {}
    assert known.flat() == frozenset()


def test_parameters_are_drawn_again_where_units_are_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until they show something, a few times; once where others show as little."""
    seeds: list[int] = []

    def noted(model: nn.Module, inputs: Mapping[str, Tensor], seed: int = 0) -> Traced:
        seeds.append(seed)
        return trace(model, inputs, seed)

    monkeypatch.setattr(reading, "trace", noted)
    torch.manual_seed(0)
    for shift, expected in ((9.0, [5]), (-9.0, [5, 6])):
        seeds.clear()
        infer(Normed(5, shift).eval(), INPUTS, "normed", 5)
        assert seeds == expected
    few = Normed(1, -2.0).eval()
    dead = [s for s in range(20) if Slopes(one := trace(few, INPUTS, s), one.state).flat()]
    first = next(s for s in dead if s + 1 not in dead)
    seeds.clear()
    found = infer(few, INPUTS, "normed", first)
    assert seeds == [first, first + 1]
    assert not any("do not depend on enter.weight" in note for note in found.notes)


def test_a_draw_that_cannot_be_traced_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def failing(model: nn.Module, inputs: Mapping[str, Tensor], seed: int = 0) -> Traced:
        seeds.append(seed)
        if seed == 1:
            raise TraceError("not this one")
        return trace(model, inputs, seed)

    monkeypatch.setattr(reading, "trace", failing)
    infer(Normed(5, -9.0).eval(), INPUTS, "normed")
    assert seeds == [0, 1, 2]
