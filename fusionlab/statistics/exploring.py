"""Exploring a model on a few examples: the layouts of what linear maps read, which share an input, what is left out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.examples import doubled, example_count, take_examples, unlike
from fusionlab.forward import forward, refusing_misfit
from fusionlab.statistics.layout import find_layout, possible_masks, shorter, token_masks
from fusionlab.statistics.linear_maps import BY_ITSELF, LinearMaps, Weight, rows_read
from fusionlab.statistics.watching import changes, hooked
from fusionlab.types import Batch

# Examples that are looked at one by one where a map may choose what it reads.
EXPLORED = 8
_NUMBER = re.compile(r"\d+")
_LAST_NUMBER = re.compile(r"\d+(?=\D*$)")


@torch.no_grad()
def explore(model: nn.Module, maps: LinearMaps, batch: Batch) -> None:
    """Run a model on one example and note in `maps` what each map reads: its layout, and which maps share it.

    Args:
        model: in eval mode.
        maps: of the model; completed in place.
        batch: any batch; only its first examples are used.

    Raises:
        InputError: the batch does not fit the model.
    """
    one = take_examples(batch, torch.tensor([0]))
    once = _record(model, maps, one)
    for name in [name for name, calls in once.items() if not all(call.is_alone for call in calls)]:
        maps.left_out[name] = BY_ITSELF
        del maps.weights[name], once[name]
    twice = _twice(model, maps, one)
    cut = _cut(model, maps, one)
    routed = _routed(model, maps, batch, once)
    for other in (twice, *cut.values()):
        routed |= {name for name, calls in once.items() if len(other[name]) != len(calls)}
    # A few examples may send as many tokens to an expert as others do; what one of them is told by, all are.
    kinds = set(map(_kind, routed))
    routed = {name for name in maps.weights if _kind(name) in kinds}
    named: dict[tuple[Any, ...], str] = {}
    # In the order of the forward, so that an input is named after the map that reads it first.
    for name in sorted(maps.weights, key=lambda name: once[name][0].order if once[name] else 0):
        if name in routed:
            maps.left_out[name] = "reads the tokens that are sent to it, as an expert's modules do"
            continue
        calls = [
            find_layout(read.leading, twice[name][index].leading, {s: c[name][index].leading for s, c in cut.items()})
            for index, read in enumerate(once[name])
        ]
        maps.layouts[name] = tuple(calls)
        data = [read for read, layout in zip(once[name], calls, strict=True) if layout is not None]
        if len(data) < len(calls):
            maps.left_out[name] = "rows that are no data (of positions, for instance)" if data else "reads no data"
        elif not data:
            maps.left_out[name] = "not applied as a module of its own"
        if data:
            maps.inputs[name] = named.setdefault(tuple(read.identity for read in data), name)


@dataclass(frozen=True)
class _Read:
    """One call while exploring: its place among all, leading dimensions, and which tensor in which state was read.

    Attributes:
        is_alone: whether the module answered with one tensor, and not with more, as some routers do.
    """

    order: int
    leading: torch.Size
    identity: tuple[Any, ...]
    is_alone: bool
    kept: Tensor  # so that no later tensor takes its identity


@refusing_misfit()
def _record(model: nn.Module, maps: LinearMaps, batch: Batch) -> dict[str, list[_Read]]:
    found: dict[str, list[_Read]] = {name: [] for name in maps.weights}

    def call(weight: Weight, module: nn.Module, read: Tensor, written: Any) -> None:
        way = id(module) if isinstance(module, nn.Conv1d | nn.Conv2d) else 0
        identity = (id(read), changes(read), way)
        order = sum(map(len, found.values()))
        leading, is_alone = rows_read(module, read).shape[:-1], isinstance(written, Tensor)
        found[weight.name].append(_Read(order, leading, identity, is_alone, read))

    with hooked(maps, call):
        forward(model, batch)
    return found


def _twice(model: nn.Module, maps: LinearMaps, one: Batch) -> dict[str, list[_Read]]:
    """Calls of maps with an example twice; an input of which it has several rows is shared, or is that example's."""
    try:
        return _record(model, maps, take_examples(one, torch.tensor([0, 0])))
    except InputError:
        if unlike(one) is None:
            raise
        return _record(model, maps, doubled(one))


def _cut(model: nn.Module, maps: LinearMaps, one: Batch) -> dict[str, dict[str, list[_Read]]]:
    """By side of an example what maps read of it with one token less; without sides that the data have no mask for,
    where a model takes no shorter text.
    """
    found = {}
    masks = token_masks(one)
    for side, mask in (possible_masks(model, one) | masks).items():
        refused: InputError | None = None
        for batch in shorter(one, side, mask):
            try:
                found[side] = _record(model, maps, batch)
                break
            except InputError as error:
                refused = refused or error
        else:
            if side in masks and refused is not None:
                raise refused
    return found


def _routed(model: nn.Module, maps: LinearMaps, batch: Batch, once: Mapping[str, Sequence[_Read]]) -> set[str]:
    """The maps whose numbers of calls or of rows depend on what an example is made of."""

    def shapes(read: Mapping[str, Sequence[_Read]]) -> dict[str, list[torch.Size]]:
        return {name: [call.leading for call in calls] for name, calls in read.items()}

    first = shapes(once)
    if all(
        len(calls) and all(len(leading) > 1 or leading.numel() == 1 for leading in calls) for calls in first.values()
    ):
        return set()
    count = min(example_count(batch), EXPLORED)
    others = [shapes(_record(model, maps, take_examples(batch, torch.tensor([index])))) for index in range(1, count)]
    return _unlike(first) | {name for name, calls in first.items() if any(other[name] != calls for other in others)}


def _unlike(read: Mapping[str, Sequence[torch.Size]]) -> set[str]:
    """The maps that read other numbers of rows than those beside them, as experts do, however alike examples are.

    Args:
        read: leading dimensions of the calls of each map.
    """
    beside: dict[str, list[str]] = {}
    for name, calls in read.items():
        if all(len(leading) == 1 for leading in calls):
            beside.setdefault(_LAST_NUMBER.sub("*", name), []).append(name)
    found: set[str] = set()
    for names in beside.values():
        # One row may be that of an example, which not every head beside others reads.
        if len({tuple(read[name]) for name in names}) > 1 and any(c.numel() > 1 for name in names for c in read[name]):
            found.update(names)
    return found


def _kind(name: str) -> str:
    """The name of a map without the numbers of its layer and of its expert."""
    return _NUMBER.sub("*", name)
