"""Models as tensors by name, of which only pieces are in memory: what advice looks at."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from fusionlab.advice.adapter_layers import AdapterLayers
from fusionlab.checkpoints.adapters import read_adapter
from fusionlab.checkpoints.card import is_twin
from fusionlab.checkpoints.files import (
    ADAPTER_CONFIG,
    CONFIG,
    is_adapter,
    read_config,
    read_json,
    read_pickle,
    read_safetensors,
    weight_files,
)
from fusionlab.checkpoints.hub import locate
from fusionlab.checkpoints.weights import read_pickled_state, refuse_no_state
from fusionlab.errors import InputError
from fusionlab.streaming import StoredModel, open_folder
from fusionlab.streaming.stored import TensorSpec
from fusionlab.types import State

# Keys of a Lightning file: of the tensors, and of what fusionlab's tasks say of the model.
_STATE, _ENTRY = "state_dict", "fusionlab"


class Reads(Protocol):
    """A reader of stretches of tensors."""

    def read(self, name: str, start: int, count: int) -> Tensor:
        """A stretch of a flattened tensor."""


@dataclass(frozen=True)
class Weights:
    """The weights of one model.

    Attributes:
        name: of the model, as in tables.
        source: its path or hub id as it is written in commands; None for a module.
        config: its description as plain data; empty where nothing describes it.
        tensors: type and shape of every tensor of floating-point numbers, by name.
        opened: holds its files open, and gives what reads stretches of tensors.
        base: path or hub id of the base model, of an adapter; else None.
        is_twin: whether its card says that it was matched already.
        layers: of an adapter, what it changes.
        of_base: the base model of an adapter, where it is here and its files say how large it is.
    """

    name: str
    source: str | None
    config: Mapping[str, Any] = field(repr=False)
    tensors: Mapping[str, TensorSpec] = field(repr=False)
    opened: Callable[[], AbstractContextManager[Reads]] = field(repr=False)
    base: str | None = None
    is_twin: bool = False
    layers: AdapterLayers | None = field(default=None, repr=False)
    of_base: Weights | None = field(default=None, repr=False)

    @property
    def numbers(self) -> int:
        """The count of its numbers."""
        return sum(tensor.count for tensor in self.tensors.values())

    @property
    def size(self) -> int:
        """Its bytes."""
        return sum(tensor.size for tensor in self.tensors.values())


def stored_weights(source: str, name: str, base: str | None = None) -> Weights:
    """The weights of a checkpoint of any format; no model is made of them.

    Folders of safetensors are read piece by piece when they are looked at, files of other formats as a whole.

    Args:
        source: a folder, a file (``.ckpt``, ``.safetensors``, ``.pt``, ``.bin``) or a hub id.
        name: of the model.
        base: of an adapter; the one that it names if None.

    Raises:
        InputError: there is none, or its files are missing or damaged.
    """
    location = locate(source)
    if location.is_dir() and is_adapter(location):
        return _of_adapter(source, name, location, base)
    stored = open_folder(source, location) if hasattr(os, "preadv") else None
    if stored is not None:
        return folder_weights(stored, name)
    if location.is_dir():
        config, files = read_config(location), weight_files(location)
        pickled = files[0].suffix != ".safetensors"
        state = read_pickled_state(files) if pickled else {n: t for f in files for n, t in read_safetensors(f).items()}
        return state_weights(state, name, source, config)
    tensors, described = _of_file(location)
    beside = location.parent / CONFIG
    return state_weights(tensors, name, source, described or (read_json(beside) if beside.is_file() else {}))


def folder_weights(stored: StoredModel, name: str) -> Weights:
    """The weights of a model as it lies on the disk, of an adapter those of its base with what it changes.

    Args:
        stored: the model.
        name: of it.
    """
    floating = {key: tensor for key, tensor in stored.tensors.items() if tensor.dtype.is_floating_point}
    kept = {key: tensor for key, tensor in floating.items() if tensor.count}
    twin = is_twin(stored.location)
    return Weights(name, stored.source, stored.config, kept, stored.opened, is_twin=twin)


def unknown_type(model: Weights) -> str | None:
    """The model type that a checkpoint names and transformers does not have; None where it has it, or none is named.

    Args:
        model: a module is known by its code.
    """
    kind = model.config.get("model_type") if model.source is not None else None
    if not isinstance(kind, str):
        return None
    import transformers  # noqa: PLC0415 - takes a second

    return None if kind in transformers.CONFIG_MAPPING else kind


def module_weights(module: nn.Module, name: str) -> Weights:
    """The weights of a module, which stay where they are.

    Args:
        module: of any class.
        name: of the model.

    Raises:
        InputError: a module without numbers.
    """
    if any(tensor.is_meta for tensor in module.state_dict().values()):
        raise InputError(f"{name} has no weights (it is on the meta device); expected a module with numbers")
    config: Any = getattr(module, "config", None)
    described = config.to_dict() if hasattr(config, "to_dict") else {"model_type": type(module).__name__}
    return state_weights(module.state_dict(), name, None, described)


def state_weights(state: State, name: str, source: str | None, config: Mapping[str, Any]) -> Weights:
    """The weights of a state dict; of tensors that are one in memory the first counts.

    Args:
        state: tensors by name.
        name: of the model.
        source: see `Weights`.
        config: see `Weights`.
    """
    places: dict[tuple[int, int], str] = {}
    for key, tensor in state.items():
        if tensor.is_floating_point() and tensor.numel():
            places.setdefault((tensor.data_ptr(), tensor.numel()), key)
    kept = {key: state[key] for key in places.values()}
    specs = {key: TensorSpec(tensor.dtype, tuple(tensor.shape)) for key, tensor in kept.items()}

    @contextmanager
    def opened() -> Iterator[Reads]:
        yield _InMemory(kept)

    return Weights(name, source, config, specs, opened)


@dataclass(frozen=True)
class _InMemory:
    """Tensors as what reads stretches of them."""

    state: State

    def read(self, name: str, start: int, count: int) -> Tensor:
        """A stretch of a flattened tensor."""
        return self.state[name].detach().reshape(-1)[start : start + count].cpu()


def _of_adapter(source: str, name: str, location: Path, base: str | None) -> Weights:
    """An adapter: the factors of its changes, and its base model's size where that is here."""
    adapter, config = read_adapter(location), read_json(location / ADAPTER_CONFIG)
    found = state_weights({}, name, source, config)
    named = base or adapter.base or ""
    stored = _stored_base(named)
    of_base = None if stored is None else folder_weights(stored, named)
    layers = AdapterLayers(adapter, stored)
    return Weights(name, source, config, {}, found.opened, named, layers=layers, of_base=of_base)


def _stored_base(base: str) -> StoredModel | None:
    """The base model of an adapter; None where it is not here, or is not stored as folders of safetensors are."""
    try:
        return open_folder(base, locate(base)) if base and hasattr(os, "preadv") else None
    except InputError:
        return None


def _of_file(path: Path) -> tuple[State, Mapping[str, Any]]:
    """The tensors in one file, and the config that it holds beside them."""
    if path.suffix == ".safetensors":
        return read_safetensors(path), {}
    content = read_pickle(path)
    state, described = content.get(_STATE, content), content.get(_ENTRY)
    refuse_no_state(path, state if isinstance(state, Mapping) else {})
    config = described.get("config") if isinstance(described, Mapping) else None
    return state, config if isinstance(config, Mapping) else {}
