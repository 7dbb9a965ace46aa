"""Watching what linear maps read and write while a model runs."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.forward import forward, refusing_misfit
from fusionlab.statistics.accumulator import Watcher
from fusionlab.statistics.layout import Layout, example_count, find_layout, shorter, take_examples, token_masks
from fusionlab.statistics.likelihood import scores
from fusionlab.statistics.linear_maps import BY_ITSELF, LinearMaps, Weight, rows_read
from fusionlab.statistics.seen import Seen
from fusionlab.types import Batch

# Examples that are looked at one by one where a map may choose what it reads.
EXPLORED = 8
_NUMBER = re.compile(r"\d+")
_LAST_NUMBER = re.compile(r"\d+(?=\D*$)")

Call = Callable[[Weight, nn.Module, Tensor, Any], None]


@contextmanager
def hooked(maps: LinearMaps, call: Call) -> Iterator[None]:
    """Have `call` called whenever a linear map runs; the hooks are removed at the end.

    Args:
        maps: whose modules are hooked.
        call: is given the weight, its module, what the module read and what it wrote.
    """

    def hook(weight: Weight) -> Callable[..., None]:
        def on_forward(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
            call(weight, module, args[0] if args else next(iter(kwargs.values())), output)

        return on_forward

    handles = [
        module.register_forward_hook(hook(weight), with_kwargs=True)
        for weight in maps.weights.values()
        for module in weight.modules
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


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
    twice = _record(model, maps, take_examples(one, torch.tensor([0, 0])))
    cut = {side: _record(model, maps, shorter(one, side, mask)) for side, mask in token_masks(one).items()}
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
        identity = (id(read), _version(read), way)
        order = sum(map(len, found.values()))
        leading, is_alone = rows_read(module, read).shape[:-1], isinstance(written, Tensor)
        found[weight.name].append(_Read(order, leading, identity, is_alone, read))

    with hooked(maps, call):
        forward(model, batch)
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


class Observer:
    """Shows watchers what the linear maps of a model read and write.

    Args:
        maps: explored by `explore`.
        watchers: who looks.
    """

    def __init__(self, maps: LinearMaps, watchers: Sequence[Watcher]) -> None:
        self.maps, self.watchers = maps, watchers
        self._calls: dict[str, int] = {}
        self._data_calls: dict[str, int] = {}
        self._read: dict[tuple[str, int], tuple[weakref.ref[Tensor], int]] = {}
        self._masks: dict[str, Tensor] = {}
        self._valid: dict[tuple[Layout, torch.Size], Tensor | None] = {}
        self._written: list[tuple[Seen, Tensor]] = []

    def watch(self, model: nn.Module, batch: Batch, run: Callable[[nn.Module, Batch], object] = forward) -> None:
        """Run the model on a batch once, for all watchers together; without gradients where none of them wants any.

        Args:
            model: whose maps are watched.
            batch: as `fusionlab.forward.forward` takes it.
            run: runs the model, or a part of it, on the batch, where nothing is differentiated.

        Raises:
            InputError: maps that shared an input in the first batch do not share it in this one, or gradients are
                wanted of a model that predicts no labels.
        """
        self._masks = token_masks(batch)
        for state in (self._calls, self._data_calls, self._read, self._valid):
            state.clear()
        for watcher in self.watchers:
            watcher.begin(batch)
        if any(watcher.differentiates for watcher in self.watchers):
            self._differentiate(model, batch)
            return
        with torch.no_grad(), hooked(self.maps, self._see):
            run(model, batch)

    def _differentiate(self, model: nn.Module, batch: Batch) -> None:
        """Show what the maps read and wrote, and the gradients of a log-likelihood by what they wrote."""
        # What is computed of parameters that are not trained has no gradients either.
        frozen = [one for one in model.parameters() if one.is_floating_point() and not one.requires_grad]
        try:
            for parameter in frozen:
                parameter.requires_grad_()
            with torch.enable_grad(), hooked(self.maps, self._see):
                (likelihood,) = scores(model, batch)
            written = [tensor for _, tensor in self._written]
            found = torch.autograd.grad(likelihood.sum(), written, allow_unused=True, materialize_grads=True)
            for (seen, _), gradient in zip(self._written, found, strict=True):
                for watcher in self.watchers:
                    if watcher.differentiates:
                        watcher.see_gradient(seen, seen.as_written(gradient))
        finally:
            self._written.clear()
            for parameter in frozen:
                parameter.requires_grad_(False)

    @torch.no_grad()
    def _see(self, weight: Weight, module: nn.Module, read: Tensor, written: Tensor) -> None:
        name = weight.name
        if name not in self.maps.inputs:
            return
        index = self._calls.get(name, 0)
        self._calls[name] = index + 1
        layouts = self.maps.layouts[name]
        if index >= len(layouts):
            raise InputError(f"{name!r} is applied more often in one batch than in another; expected equal numbers")
        if (layout := layouts[index]) is None:
            return
        call = self._data_calls.get(name, 0)
        self._data_calls[name] = call + 1
        source = self.maps.inputs[name]
        self._check_shared(name, source, call, read)
        # A policy of lower precision ends here: sums are made in float32 or better.
        with torch.autocast(read.device.type, enabled=False):
            rows = rows_read(module, read)
            leading = rows.shape[:-1]
            if (layout, leading) not in self._valid:
                self._valid[layout, leading] = layout.valid(self._masks, leading)
            valid = self._valid[layout, leading]
            if valid is not None and len(valid) != leading.numel():
                raise InputError(
                    f"{name!r} read {leading.numel()} of {len(valid)} tokens in one batch and all of them in another; "
                    f"expected batches whose first examples show which modules choose their tokens"
                )
            seen = Seen(weight, source, source == name, call, leading, layout, valid, module, rows, written)
            for watcher in self.watchers:
                watcher.see(seen)
            if written.requires_grad:
                self._written.append((seen, written))

    def _check_shared(self, name: str, source: str, call: int, read: Tensor) -> None:
        if source == name:
            self._read[name, call] = weakref.ref(read), _version(read)
            return
        first, version = self._read.get((source, call), (lambda: None, -1))
        if first() is not read or version != _version(read):
            raise InputError(f"{name!r} and {source!r} read one tensor in the first batch only; expected it in every")


def _version(tensor: Tensor) -> int:
    """The number of times that a tensor was changed in place; 0 for tensors of inference mode, which do not count."""
    return 0 if tensor.is_inference() else tensor._version
