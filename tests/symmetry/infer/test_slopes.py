"""What derivatives say that outputs depend on, they depend on; what they do not, is left to be tried."""

import torch
from torch import Tensor, nn

from fusionlab.symmetry.infer.slopes import Slopes
from fusionlab.symmetry.infer.trace import trace

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
