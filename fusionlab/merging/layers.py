"""The layers of a model one after the other, each on what those before it, already changed, have made of the inputs."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fusionlab.errors import InputError
from fusionlab.forward import forward, refusing_misfit, with_decoder_tokens
from fusionlab.types import Batch, Model


def blocks(model: nn.Module, batch: Batch) -> list[str]:
    """The paths of a model's layers, in the order in which they run: the modules of its outermost numbered lists.

    A list of a single layer counts, a sequence (``Sequential``) of a single module does not: it only wraps it.

    Args:
        model: any.
        batch: to run it on.

    Raises:
        InputError: no such list, a layer that runs another number of times than once, or a batch that does not fit.
    """
    lists: list[str] = []
    paths: list[str] = []
    for path, module in model.named_modules():
        inner = any(path.startswith(outer) for outer in lists)
        numbered = isinstance(module, nn.ModuleList) or (isinstance(module, nn.Sequential) and len(module) > 1)
        if numbered and not inner:
            lists.append(f"{path}." if path else "")
            paths += [f"{lists[-1]}{name}" for name, _ in module.named_children()]
    ran: list[str] = []
    handles = [
        model.get_submodule(path).register_forward_pre_hook(lambda *_, path=path: ran.append(path)) for path in paths
    ]
    try:
        with torch.no_grad(), refusing_misfit():
            forward(model, batch)
    finally:
        for handle in handles:
            handle.remove()
    if not ran:
        raise InputError(f"{type(model).__name__} has no layers in a list; expected some, to go through in order")
    if len(set(ran)) < len(ran):
        twice = next(path for path in ran if ran.count(path) > 1)
        raise InputError(f"{twice!r} runs several times for one input; expected layers that run once")
    return ran


def without_cache(model: Model) -> Model:
    """The model, changed so that its layers keep no keys and values: a layer that runs twice would read its own."""
    for module in model.modules():
        config: Any = getattr(module, "config", None)
        if hasattr(config, "use_cache"):
            config.use_cache = False
    return model


class Walk:
    """Inputs on their way through a model whose layers change as they are reached.

    Each layer runs once for every batch: what it is called with is kept, and what the layers before it gave stands in
    for them. So it holds what every layer gives for all inputs.

    Args:
        model: in eval mode, without a cache of keys and values (`without_cache`); its parameters may be changed between
            two steps, of what was not run yet.
        paths: its layers, from `blocks`.
        batches: inputs.
    """

    def __init__(self, model: nn.Module, paths: Sequence[str], batches: Iterable[Batch]) -> None:
        self.model, self.paths = model, list(paths)
        device = next(model.parameters()).device
        self.batches = [
            {name: value.to(device) for name, value in with_decoder_tokens(model, batch).items()} for batch in batches
        ]
        # For each batch, what each layer gave; and by batch the arguments of the one that was reached.
        self._given: list[dict[str, _Passed]] = [{} for _ in self.batches]
        self._calls: dict[int, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self._place = -1

    @torch.no_grad()
    def advance(self) -> None:
        """Go on to the next layer: run the one that was reached as it is now.

        What the next is called with is found when it is asked for, so that what runs between the two may change first.
        """
        if self._place >= 0:
            path = self.paths[self._place]
            passed = self.model.get_submodule(path)
            for index, given in enumerate(self._given):
                args, kwargs = self._call(index)
                given[path] = _Passed.run(passed, args, kwargs)
        self._place += 1
        self._calls.clear()

    def run_layer(self, model: nn.Module, index: int) -> None:
        """Run another model's layer in place of the one that was reached, on one of the batches."""
        # A layer may change its inputs in place, a cache too, and the merged one is to read them as they were.
        args, kwargs = copy.deepcopy(self._call(index))
        model.get_submodule(self.paths[self._place])(*args, **kwargs)

    def run_up_to(self, model: nn.Module, index: int) -> None:
        """Run what is before the layer that was reached, in another model, on what the passed layers gave."""
        self._reached(model, index)

    def run_end(self, model: nn.Module, index: int) -> None:
        """Run what is behind the last layer of another model, once all layers were passed."""
        with _passed(model, self.paths, self._given[index]):
            forward(model, self.batches[index])

    def _call(self, index: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if index not in self._calls:
            self._calls[index] = self._reached(self.model, index)
        return self._calls[index]

    def _reached(self, model: nn.Module, index: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        layer = model.get_submodule(self.paths[self._place])
        with _passed(model, self.paths[: self._place], self._given[index]), _stopping(layer) as found:
            forward(model, self.batches[index])
        return found[0]


@dataclass(frozen=True)
class _Passed:
    """The output of a layer, and what it left for later ones in mappings that all are handed, such as keys and values.

    Attributes:
        output: of the layer.
        left: by the place or name of the argument, the entries that are new.
    """

    output: Any
    left: Mapping[int | str, Mapping[Any, Any]]

    @classmethod
    def run(cls, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Passed:
        """Run a layer."""
        before = {place: dict(mapping) for place, mapping in _mappings(args, kwargs).items()}
        output = layer(*args, **kwargs)
        left = {
            place: {key: value for key, value in mapping.items() if before[place].get(key) is not value}
            for place, mapping in _mappings(args, kwargs).items()
        }
        return cls(output, left)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The output in place of running the layer, with what it left put into the mappings that it is handed."""
        mappings = _mappings(args, kwargs)
        for place, entries in self.left.items():
            mappings[place].update(entries)
        return self.output


def _mappings(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[int | str, MutableMapping[Any, Any]]:
    """The arguments that are mappings, by place or name."""
    every: Iterable[tuple[int | str, Any]] = itertools.chain(enumerate(args), kwargs.items())
    return {place: value for place, value in every if isinstance(value, MutableMapping)}


class _ReachedError(Exception):
    """A layer was reached, and nothing behind it is wanted."""


@contextmanager
def _stopping(layer: nn.Module) -> Iterator[list[tuple[tuple[Any, ...], dict[str, Any]]]]:
    """Keep the arguments of a layer where it is called, and end the forward there."""
    found: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def stop(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        found.append((args, kwargs))
        raise _ReachedError

    handle = layer.register_forward_pre_hook(stop, with_kwargs=True)
    try:
        yield found
    except _ReachedError:
        pass
    finally:
        handle.remove()


@contextmanager
def _passed(model: nn.Module, paths: Sequence[str], given: dict[str, _Passed]) -> Iterator[None]:
    """Let layers that were passed give what they gave, without running."""
    layers = [model.get_submodule(path) for path in paths]
    for path, layer in zip(paths, layers, strict=True):
        layer.forward = given[path]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward
