"""The model inside of what wraps it: compiled modules, data parallelism, Fabric, or the path of a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any, TypeVar

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

Model = TypeVar("Model", bound=nn.Module)
Reader = Callable[[str | PathLike[str]], nn.Module]
# What reads checkpoints is no part of this floor, which imports nothing; whoever has it registers it here.
_READERS: list[Reader] = []


def register_reader(reader: Reader) -> None:
    """Make a function known that reads the models of paths.

    Args:
        reader: of a path or hub id; it imports what it needs when it is called.
    """
    _READERS[:] = [reader]


def read_model(path: str | PathLike[str]) -> nn.Module | None:
    """The model of a checkpoint; None where nothing that reads any was registered.

    Args:
        path: or hub id.
    """
    return _READERS[0](path) if _READERS else None


def unwrapped(model: Model) -> Model:
    """The model itself, without what was put around it to run it: ``torch.compile``, DataParallel, Lightning's Fabric.

    Args:
        model: any module; one that nothing wraps is returned as it is.
    """
    inner: Any = model
    while True:
        if isinstance(compiled := getattr(inner, "_orig_mod", None), nn.Module):
            inner = compiled
        elif isinstance(inner, DataParallel | DistributedDataParallel) or type(inner).__name__ == "_FabricModule":
            inner = inner.module
        else:
            found: Model = inner
            return found
