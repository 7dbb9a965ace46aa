"""Small networks that were trained: from other seeds, from one base, and what else models can be to one another."""

import copy
import itertools
from collections.abc import Sequence
from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

WIDTH = 32


@cache
def digits() -> tuple[Tensor, Tensor]:
    """All images and labels of scikit-learn's digits."""
    found = load_digits()
    return torch.tensor(found.data / 16, dtype=torch.float32), torch.tensor(found.target)


def fresh(seed: int, width: int = WIDTH, layers: int = 2) -> nn.Sequential:
    """A network of a class that nobody has described, with random weights."""
    torch.manual_seed(seed)
    sizes = [64, *[width] * layers]
    hidden = [part for one, two in itertools.pairwise(sizes) for part in (nn.Linear(one, two), nn.ReLU())]
    return nn.Sequential(*hidden, nn.LayerNorm(width), nn.Linear(width, 10))


def trained(model: nn.Sequential, steps: int, rate: float, classes: Sequence[int] = range(10)) -> nn.Sequential:
    """A copy, trained on some of the classes."""
    images, labels = digits()
    kept = torch.isin(labels, torch.tensor(list(classes)))
    images, labels = images[kept], labels[kept]
    copied = copy.deepcopy(model)
    optimiser = torch.optim.Adam(copied.parameters(), lr=rate)
    draw = torch.Generator().manual_seed(0)
    for _ in range(steps):
        batch = torch.randint(len(images), (64,), generator=draw)
        optimiser.zero_grad()
        nn.functional.cross_entropy(copied(images[batch]), labels[batch]).backward()
        optimiser.step()
    return copied


@cache
def end_model(seed: int, width: int = WIDTH) -> nn.Sequential:
    """A network trained from a seed."""
    return trained(fresh(seed, width), 150, 3e-3)


def renumbered(model: nn.Sequential, seed: int) -> nn.Sequential:
    """The same function, hidden units of both layers in another order."""
    moved = copy.deepcopy(model)
    state = moved.state_dict()
    draw = torch.Generator().manual_seed(seed)
    one, two = (torch.randperm(len(state[name]), generator=draw) for name in ("0.bias", "2.bias"))
    changed = {"0.weight": state["0.weight"][one], "0.bias": state["0.bias"][one], "2.bias": state["2.bias"][two]}
    changed |= {"2.weight": state["2.weight"][two][:, one], "5.weight": state["5.weight"][:, two]}
    changed |= {name: state[name][two] for name in ("4.weight", "4.bias")}
    moved.load_state_dict({**state, **changed})
    return moved
