"""The model inside of what wraps it: compiled modules, data parallelism, Fabric."""

from __future__ import annotations

from typing import Any, TypeVar

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

Model = TypeVar("Model", bound=nn.Module)


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
