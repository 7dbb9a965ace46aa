"""Operations of torch that people's own modules use: what they leave is found, exact, and matched."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fusionlab.matching.align import align_states, gauged
from fusionlab.matching.presets import preset
from fusionlab.matching.weights import squared_distance
from fusionlab.symmetry import Alignment
from fusionlab.symmetry.infer.blueprint import infer
from tests.symmetry.scramble import scrambled

EXACT = 1e-9


class Operated(nn.Module):
    """Two layers of parameters and what a function makes of them and of the input."""

    def __init__(self, up: nn.Module, down: nn.Module, function: Callable[[nn.Module, nn.Module, Tensor], Tensor]):
        super().__init__()
        self.up, self.down, self.function = up, down, function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.up, self.down, x)


def fused_attention(up: nn.Module, down: nn.Module, x: Tensor) -> Tensor:
    """Six heads of queries, two of keys and of values, in torch's own kernel."""
    q, k, v = up(x).split([6 * 3, 2 * 3, 2 * 3], -1)
    heads = (part.unflatten(-1, (-1, 3)).transpose(1, 2) for part in (q, k, v))
    mixed = functional.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
    return down(mixed.transpose(1, 2).flatten(2))


def messages(up: nn.Module, down: nn.Module, x: Tensor) -> Tensor:
    """Sums over the neighbours of each node in a ring."""
    nodes = torch.relu(up(x))
    return down(torch.zeros_like(nodes).index_add(1, torch.tensor([1, 2, 3, 4, 0, 2]), nodes[:, [0, 1, 2, 3, 4, 0]]))


def scattered(up: nn.Module, down: nn.Module, x: Tensor) -> Tensor:
    """The same, the place of each number given."""
    nodes = torch.relu(up(x))
    places = torch.tensor([1, 2, 2, 4, 0])[:, None].expand(len(x), -1, nodes.shape[-1])
    return down(torch.zeros_like(nodes).scatter_add(1, places, nodes))


def reduced(up: nn.Module, down: nn.Module, x: Tensor, how: str) -> Tensor:
    nodes = torch.relu(up(x))
    places = torch.tensor([1, 2, 2, 4, 0])[:, None].expand(len(x), -1, nodes.shape[-1])
    return down(torch.zeros_like(nodes).scatter_reduce(1, places, nodes, how, include_self=False))


def volumes(up: nn.Module, down: nn.Module, x: Tensor) -> Tensor:
    channels = functional.max_pool3d(torch.relu(up(x)), 2)
    return down(functional.interpolate(channels, scale_factor=2, mode="trilinear").mean((2, 3, 4)))


def sampled(up: nn.Module, down: nn.Module, x: Tensor) -> Tensor:
    return down(torch.relu(functional.grid_sample(up(x), x[:, :2].movedim(1, -1), align_corners=False)))


def linear_attention(up: nn.Module, down: nn.Module, x: Tensor) -> Tensor:
    """Queries read a state that starts from zeros, before each token's key and value are added to it."""
    queries, keys, values = up(x).split([5, 5, 7], -1)
    state, read = x.new_zeros(len(x), 5, 7), []
    for step in range(x.shape[1]):
        read.append(torch.einsum("bk,bkv->bv", queries[:, step], state))
        state = state + torch.einsum("bk,bv->bkv", keys[:, step], values[:, step])
    return down(torch.stack(read, 1))


def own_keys(up: nn.Module, down: nn.Module, x: Tensor) -> Tensor:
    """Two heads whose queries are their keys."""
    keys, values = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in up(x).split([8, 6], -1))
    mixed = (keys @ keys.mT).softmax(-1) @ values
    return down(mixed.transpose(1, 2).flatten(2))


def floats(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


@dataclass(frozen=True)
class Row:
    """What is computed, of which input, and the groups that are left, each with its copies."""

    name: str
    build: Callable[[], nn.Module]
    x: Tensor
    groups: frozenset[tuple[str, tuple[int, ...]]]


def row(name: str, up: Callable[[], nn.Module], down: Callable[[], nn.Module], function: Callable[..., Tensor],
        x: Tensor, *groups: tuple[str, tuple[int, ...]]) -> Row:  # fmt: skip
    return Row(name, lambda: Operated(up(), down(), function), x, frozenset(groups))


UNITS = ("S(7)", ()), ("R+(1)", (7,))
SIGNED = ("S(7)", ()), ("Z2(1)", (7,))
ROWS = (
    row("grouped queries in the fused kernel", lambda: nn.Linear(8, 30), lambda: nn.Linear(18, 5), fused_attention,
        floats(3, 5, 8), ("S(2)", ()), ("S(3)", (2,)), ("GL(3)", (2,))),
    row("a gate from half of the channels", lambda: nn.Conv1d(3, 14, 3), lambda: nn.Linear(7, 5),
        lambda up, down, x: down(functional.glu(up(x), 1).mean(-1)), floats(3, 3, 9), ("S(7)", ()), ("R*(1)", (7,))),
    row("places from channels", lambda: nn.Conv2d(3, 28, 1), lambda: nn.Conv2d(7, 5, 1),
        lambda up, down, x: down(torch.relu(functional.pixel_shuffle(up(x), 2))), floats(3, 3, 4, 5), *UNITS),
    row("channels from places", lambda: nn.Conv2d(3, 7, 1), lambda: nn.Conv2d(28, 5, 1),
        lambda up, down, x: down(functional.pixel_unshuffle(torch.relu(up(x)), 2)), floats(3, 3, 4, 6), *UNITS),
    row("channels read at each of their places", lambda: nn.Conv1d(3, 7, 3), lambda: nn.Linear(28, 5),
        lambda up, down, x: down(torch.relu(up(x)).flatten(1)), floats(3, 3, 6), *UNITS),
    row("channels of volumes", lambda: nn.Conv3d(3, 7, 1), lambda: nn.Linear(7, 5), volumes,
        floats(3, 3, 4, 4, 4), *UNITS),
    row("places that another tensor says", lambda: nn.Conv2d(3, 7, 1), lambda: nn.Conv2d(7, 5, 1),
        sampled,
        floats(3, 3, 4, 5), *UNITS),
    row("bags of words", lambda: nn.EmbeddingBag(11, 8), lambda: nn.Linear(8, 5),
        lambda up, down, x: down(up(x)), torch.tensor([[1, 2, 10], [3, 3, 0], [7, 8, 9]]), ("GL(8)", ())),
    row("the largest in bags of words", lambda: nn.EmbeddingBag(11, 7, mode="max"), lambda: nn.Linear(7, 5),
        lambda up, down, x: down(up(x)), torch.tensor([[1, 2, 10], [3, 3, 0], [7, 8, 9]]), *UNITS),
    row("messages of neighbours", lambda: nn.Linear(6, 7), lambda: nn.Linear(7, 5), messages, floats(3, 5, 6), *UNITS),
    row("messages scattered", lambda: nn.Linear(6, 7), lambda: nn.Linear(7, 5), scattered, floats(3, 5, 6), *UNITS),
    row("their means", lambda: nn.Linear(6, 7), lambda: nn.Linear(7, 5),
        lambda up, down, x: reduced(up, down, x, "mean"), floats(3, 5, 6), *UNITS),
    row("the largest of them", lambda: nn.Linear(6, 7), lambda: nn.Linear(7, 5),
        lambda up, down, x: reduced(up, down, x, "amax"), floats(3, 5, 6), *UNITS),
    row("a norm of a matrix", lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(6, 7)), lambda: nn.Linear(7, 5),
        lambda up, down, x: down(torch.relu(up(x))), floats(3, 6), *UNITS),
    row("Python's sum of activations", lambda: nn.Linear(6, 7), lambda: nn.Linear(7, 5),
        lambda up, down, x: down(sum(up(part) for part in x.unbind(1))), floats(3, 2, 6), ("GL(7)", ())),
    row("Python's sum of parameters", lambda: nn.ParameterList(list(floats(2, 7, 6))), lambda: nn.Linear(7, 5),
        lambda up, down, x: down(x @ sum(up).T), floats(3, 6), ("GL(7)", ())),
    row("a state that starts from zeros", lambda: nn.Linear(6, 17), lambda: nn.Linear(7, 5), linear_attention,
        floats(3, 4, 6), ("GL(5)", ()), ("GL(7)", ())),
    row("a hidden state that starts from zeros", lambda: nn.RNN(6, 7, nonlinearity="relu"), lambda: nn.Linear(7, 5),
        lambda up, down, x: down(up(x)[0]), floats(3, 4, 6), *UNITS),
    row("the largest of each channel", lambda: nn.Conv1d(3, 7, 3), lambda: nn.Linear(7, 5),
        lambda up, down, x: down(torch.relu(up(x)).max(-1).values), floats(3, 3, 9), *UNITS),
    row("shares of two", lambda: nn.Linear(6, 14), lambda: nn.Linear(7, 5),
        lambda up, down, x: down(torch.lerp(*up(x).chunk(2, -1), 0.3)), floats(3, 6), ("GL(7)", ())),
    row("windows of neighbours", lambda: nn.Linear(6, 7), lambda: nn.Linear(21, 5),
        lambda up, down, x: down(torch.relu(up(x)).unfold(1, 3, 1).flatten(2)), floats(3, 5, 6), *UNITS),
    row("channels dealt out", lambda: nn.Conv1d(3, 14, 1), lambda: nn.Conv1d(14, 5, 1),
        lambda up, down, x: down(functional.channel_shuffle(torch.relu(up(x)), 2)), floats(3, 3, 6),
        ("S(2)", ()), ("S(7)", ()), ("R+(1)", (2,)), ("R+(1)", (7,))),
    row("between bounds", lambda: nn.Linear(6, 7), lambda: nn.Linear(7, 5),
        lambda up, down, x: down(functional.hardtanh(up(x)).clamp(-0.5, 0.5)), floats(3, 6), *SIGNED),
    row("nothing near zero", lambda: nn.Linear(6, 7), lambda: nn.Linear(7, 5),
        lambda up, down, x: down(functional.softshrink(up(x))), floats(3, 6), *SIGNED),
    row("no less than zero", lambda: nn.Linear(6, 7), lambda: nn.Linear(7, 5),
        lambda up, down, x: down(up(x).clamp(min=0)), floats(3, 6), *UNITS),
    row("read by what wrote it", lambda: nn.Linear(6, 4, bias=False), lambda: nn.Linear(6, 5),
        lambda up, down, x: down(up(x) @ up.weight), floats(3, 6), ("O(4)", ())),
    row("read by what wrote it, behind a ReLU", lambda: nn.Linear(6, 4, bias=False), lambda: nn.Linear(6, 5),
        lambda up, down, x: down(torch.relu(up(x)) @ up.weight), floats(3, 6), ("S(4)", ())),
    row("queries that are keys", lambda: nn.Linear(6, 14, bias=False), lambda: nn.Linear(6, 5),
        own_keys, floats(3, 5, 6), ("S(2)", ()), ("O(4)", (2,)), ("GL(3)", (2,))),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_what_an_operation_leaves_is_found_and_matched(row: Row) -> None:
    torch.manual_seed(0)
    model = row.build().double().eval()
    given = row.x.double() if row.x.is_floating_point() else row.x
    found = infer(model, {"x": row.x}, "own")
    assert {(str(space.group), space.copies) for space in found.spaces.values()} == row.groups
    with torch.no_grad():
        before = model(given)
        after = Alignment.random(found, torch.Generator().manual_seed(7)).apply(model)(given)
    assert (before - after).abs().max() < EXACT * before.abs().max()
    # From a random basis, as the families of transformers are.
    options = preset("weights", temperatures=5)
    state = model.state_dict()
    states = [state, scrambled(state, found, seed=6)]
    _, gauges = gauged(states, found, options)
    apart = squared_distance(*(gauge.apply(x) for gauge, x in zip(gauges, states, strict=True)))
    met = [one.apply(x) for one, x in zip(align_states(states, found, options), states, strict=True)]
    assert squared_distance(*met) < EXACT**2 * apart
