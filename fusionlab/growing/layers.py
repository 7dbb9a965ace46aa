"""The layers of a larger model that those of a small one become, in order."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.symmetry.stacks import Stacks

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Placement:
    """The layers of a stack that those of a small model's become.

    Attributes:
        small: path of the stack in the small model.
        large: in the larger one.
        positions: for every layer of the small model, in order, its place; rising.
        length: of the larger stack.
    """

    small: str
    large: str
    positions: tuple[int, ...]
    length: int

    @property
    def deepens(self) -> bool:
        """Some layer of the larger stack is no layer of the small one."""
        return len(self.positions) < self.length


def lists_of(stacks: Stacks) -> frozenset[str]:
    """The paths of the lists that a blueprint's stacks are made of: experts, whose places say no depth.

    Args:
        stacks: by a name with a star in the place of the number.
    """
    return frozenset(re.split(r"\.[^.]*\*", name, maxsplit=1)[0] for name in stacks)


def layer_stacks(model: nn.Module, besides: Collection[str] = ()) -> dict[str, int]:
    """The containers of numbered modules in a model, outermost first, and the length of each.

    Args:
        model: any module.
        besides: paths of containers that hold no layers, which are left out (`lists_of`).
    """
    found = {}
    for path, module in model.named_modules(remove_duplicate=False):
        if path in besides:
            continue
        names = list(_children(module))
        if names and names == [str(index) for index in range(len(names))]:
            found[path] = len(names)
    return found


def _children(module: nn.Module) -> dict[str, nn.Module]:
    """A module's own modules by name; one that stands in several places is there more than once."""
    every = module.named_modules(remove_duplicate=False)
    return {name: child for name, child in every if name and "." not in name}


def placements(
    small: nn.Module,
    large: nn.Module,
    unlikeness: Mapping[str, Tensor] | None = None,
    besides: Collection[str] = (),
) -> tuple[Placement, ...]:
    """The places of a small model's layers, stack by stack; layers keep their order.

    Args:
        small: the small model.
        large: one of the larger architecture.
        unlikeness: by the path of a stack in the small model, of shape ``(layers, larger layers)``, what it costs to
            put a layer in a place; in stacks that are not named each layer stands at the
            end of its share of the places.
        besides: paths of lists in the small model that hold no layers.

    Raises:
        InputError: more layers than the larger model has, or layers of a kind that it lacks.
    """
    lengths, found = layer_stacks(large), list[Placement]()
    for path, length in layer_stacks(small, besides).items():
        target = renamed(path, found)
        if target not in lengths:
            raise InputError(
                f"the larger model has no {target!r}, where the small one has {path!r}; expected one class"
            )
        longer = lengths[target]
        if longer < length:
            raise InputError(
                f"{path!r} has {length} layers and would have {longer}; expected a larger model with at least {length}"
            )
        cost = (unlikeness or {}).get(path)
        # Layers that cost the same anywhere (a model without spread) stay where they would be without data.
        cost = _uneven(length, longer) if cost is None else cost.double() + 1e-9 * _uneven(length, longer)
        allowed = _of_one_kind(small, large, path, target) if length < longer else torch.ones(length, longer).bool()
        positions = place(cost.masked_fill(~allowed, torch.inf))
        if positions is None:
            raise InputError(
                f"{path!r} has layers of kinds that {target!r} of the larger model does not have in this order; "
                f"expected the same kinds of layers, in one order"
            )
        found.append(Placement(path, target, positions, longer))
    return tuple(found)


def place(cost: Tensor) -> tuple[int, ...] | None:
    """The cheapest rising sequence of places, by dynamic programming.

    Args:
        cost: shape ``(layers, places)``, of each layer in each place; infinite where it may not go.

    Returns:
        One place for each layer; None where there is no such sequence.
    """
    layers, places = cost.shape
    # best[i, j]: the first i layers in the first j places.
    best = torch.full((layers + 1, places + 1), torch.inf, dtype=torch.float64)
    best[0] = 0
    for layer in range(layers):
        for column in range(places):
            taken = best[layer, column] + cost[layer, column]
            best[layer + 1, column + 1] = torch.minimum(best[layer + 1, column], taken)
    if not torch.isfinite(best[layers, places]):
        return None
    chosen, column = [], places
    for layer in range(layers, 0, -1):
        while best[layer, column - 1] <= best[layer, column]:
            column -= 1
        column -= 1
        chosen.append(column)
    return tuple(reversed(chosen))


def renamed(name: str, found: Sequence[Placement]) -> str:
    """The name of a module or parameter in the larger model.

    Args:
        name: in the small model.
        found: placements, outermost first.
    """
    for placement in reversed(found):
        prefix = f"{placement.small}." if placement.small else ""
        if name.startswith(prefix):
            index, dot, rest = name.removeprefix(prefix).partition(".")
            if index.isdigit():
                start = f"{placement.large}." if placement.large else ""
                return f"{start}{placement.positions[int(index)]}{dot}{rest}"
    return name


def _uneven(layers: int, places: int) -> Tensor:
    """The squared distance of each place from the last one of a layer's share.

    Each layer has a share of the places that is as long as the others, and stands at its end: there its output is as
    deep in the larger stack as in the small one.
    """
    last = torch.arange(1, layers + 1, dtype=torch.float64) * places / layers - 1
    # Of two places that are as near, the later one.
    return (last[:, None] + 1e-6 - torch.arange(places)[None]).square()


def _of_one_kind(small: nn.Module, large: nn.Module, path: str, target: str) -> Tensor:
    """The pairs of layers with the same parameters, and of the same kind where the configs list kinds."""
    ours = [_described(layer) for layer in _children(small.get_submodule(path)).values()]
    theirs = [_described(layer) for layer in _children(large.get_submodule(target)).values()]
    allowed = torch.tensor([[one == other for other in theirs] for one in ours])
    kinds, other_kinds = (_kinds(model, len(layers)) for model, layers in ((small, ours), (large, theirs)))
    if kinds and other_kinds:
        allowed &= torch.tensor([[one == other for other in other_kinds] for one in kinds])
    return allowed


def _described(layer: nn.Module) -> tuple[type, frozenset[str]]:
    # Inner stacks may be longer in one of the two.
    return type(layer), frozenset(_NUMBER.sub("*", name) for name in layer.state_dict())


def _kinds(model: nn.Module, length: int) -> Sequence[str]:
    config: Any = getattr(model, "config", None)
    kinds = getattr(config, "layer_types", None)
    return kinds if isinstance(kinds, list | tuple) and len(kinds) == length else ()
