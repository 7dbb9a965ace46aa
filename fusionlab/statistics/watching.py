"""Watching what linear maps read and write while a model runs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.forward import forward
from fusionlab.statistics.accumulator import Watcher
from fusionlab.statistics.layout import Layout, token_masks
from fusionlab.statistics.likelihood import scores
from fusionlab.statistics.linear_maps import LinearMaps, Weight, rows_read
from fusionlab.statistics.seen import Seen
from fusionlab.types import Batch

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
            self._read[name, call] = weakref.ref(read), changes(read)
            return
        first, seen = self._read.get((source, call), (lambda: None, -1))
        if first() is not read or seen != changes(read):
            raise InputError(f"{name!r} and {source!r} read one tensor in the first batch only; expected it in every")


def changes(tensor: Tensor) -> int:
    """The number of times that a tensor was changed in place; 0 for tensors of inference mode, which do not count."""
    return 0 if tensor.is_inference() else tensor._version
