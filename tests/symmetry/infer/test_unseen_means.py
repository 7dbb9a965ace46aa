"""Constants that a LayerNorm or a softmax does not see are found and cleared, and no others."""

import pytest
import torch
from torch import Tensor, nn

from fusionlab.matching.options import MatchOptions
from fusionlab.matching.weights import match_weights, squared_distance
from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.symmetry.biases import clear_biases
from fusionlab.symmetry.infer.attempts import EXACT
from tests.families.harness import length_preserving
from tests.symmetry.infer.test_gauges import WIDTH, change, described, generic


class PostNorm(nn.Module):
    """A stream that is normed after every sum; `norm` says how."""

    def __init__(self, norm: str) -> None:
        super().__init__()
        self.enter, self.head = nn.Linear(WIDTH, 8), nn.Linear(8, 4)
        self.up, self.down = nn.Linear(8, 7), nn.Linear(7, 8)
        self.first, self.last = ((nn.LayerNorm if norm == "layer" else nn.RMSNorm)(8) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(self.enter(x))
        return self.head(self.last(x + self.down(torch.tanh(self.up(x)))))


class Routed(nn.Module):
    """Experts that a router weighs by a function of its logits, the two best of them."""

    def __init__(self, function: str) -> None:
        super().__init__()
        self.router, self.function = nn.Linear(WIDTH, 3), function
        self.up, self.down = nn.Parameter(torch.randn(3, WIDTH, 4)), nn.Parameter(torch.randn(3, 4, 5))

    def forward(self, x: Tensor) -> Tensor:
        logits = self.router(x)
        weights = logits.softmax(-1) if self.function == "softmax" else logits.sigmoid()
        best = weights.topk(2, -1).indices
        weights = weights * torch.zeros_like(weights).scatter(-1, best, 1.0)
        weights = weights / weights.sum(-1, keepdim=True)
        inside = torch.tanh(torch.einsum("btd,edu->bteu", x, self.up))
        return (weights.unsqueeze(-1) * torch.einsum("bteu,euc->btec", inside, self.down)).sum(-2)


ROUTER = {("router.weight", 0), ("router.bias", 0)}
WRITERS = {("enter.weight", 0), ("enter.bias", 0), ("down.weight", 0), ("down.bias", 0)}
ROWS = [
    pytest.param(lambda: PostNorm("layer"), WRITERS, id="LayerNorm"),
    pytest.param(lambda: PostNorm("rms"), set(), id="RMSNorm"),
    pytest.param(lambda: Routed("softmax"), ROUTER, id="softmax"),
    pytest.param(lambda: Routed("sigmoid"), set(), id="sigmoid"),
]


@pytest.mark.parametrize(("build", "unseen"), ROWS)
def test_means_that_nothing_sees_are_found(build, unseen) -> None:
    torch.manual_seed(0)
    assert set(described(build()).unseen_means) == unseen


def translated(model: nn.Module, description: Blueprint) -> dict[str, Tensor]:
    """The model's parameters with constants added wherever nothing sees them."""
    draw, state = torch.Generator().manual_seed(8), dict(model.state_dict())
    for name, dim in description.unseen_means:
        shape = [1 if d == dim else size for d, size in enumerate(state[name].shape)]
        state[name] = state[name] + torch.randn(shape, generator=draw, dtype=torch.float64)
    return state


@pytest.mark.parametrize("build", [lambda: PostNorm("layer"), lambda: Routed("softmax")], ids=["stream", "router"])
def test_models_that_a_translation_tells_apart_are_one_in_the_gauge(build) -> None:
    """The same function; other parameters, in another basis too; found again to the last digits."""
    torch.manual_seed(0)
    description, model = described(build()), generic(build())
    gauge = description.without_biases()
    state = model.state_dict()
    moved = translated(model, description)
    assert change(model, moved) <= EXACT
    assert squared_distance(moved, state) > 1
    planted = length_preserving(gauge)
    source, anchor = planted.apply(moved), clear_biases(state, gauge)
    assert change(model, source) <= EXACT
    found = match_weights(source, anchor, gauge, MatchOptions(spaces=("all",), rescale="off"))
    assert squared_distance(found.apply(source), anchor) < EXACT**2 * squared_distance(source, anchor)
    plain = Alignment(description, planted.elements).apply(moved)
    left = match_weights(plain, state, description, MatchOptions(spaces=("all",), rescale="off"))
    assert squared_distance(left.apply(plain), state) > 0.1
