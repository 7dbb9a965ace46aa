"""Checkpoints: Hugging Face folders and hub ids, timm folders, Lightning files; read safely, written atomically."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fusionlab.checkpoints.checkpoint import Checkpoint, load, read, save, stored_as
    from fusionlab.checkpoints.huggingface import load_with_head
    from fusionlab.checkpoints.lightning_file import describe

__all__ = ["Checkpoint", "describe", "load", "load_with_head", "read", "save", "stored_as"]

_HOMES = {"describe": "lightning_file", "load_with_head": "huggingface"}


def __getattr__(name: str) -> Any:
    # Imported when first used: transformers and timm take seconds, and tensors of files are merged without them.
    import importlib  # noqa: PLC0415

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'checkpoint')}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
