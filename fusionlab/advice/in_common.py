"""The base of two adapters and the heads of two classifiers, however they are written."""

from __future__ import annotations

from pathlib import Path

from fusionlab import misfits
from fusionlab.advice.tensors import Weights


def share_base(first: Weights, second: Weights) -> bool:
    """True for two adapters of one base model, however its path is written.

    Args:
        first: one adapter.
        second: the other.
    """
    return _place(first.base) == _place(second.base)


def _place(base: str | None) -> str | None:
    """The folder of a base model, or its hub id."""
    if base is None:
        return None
    path = Path(base).expanduser()
    return str(path.resolve()) if path.exists() else base


def is_head(name: str, first: Weights, second: Weights) -> bool:
    """True for a parameter with one row for each class, of models that tell other numbers of classes apart.

    Args:
        name: of the parameter.
        first: one model.
        second: the other.
    """
    counts = tuple(misfits.classes_of(model.config) for model in (first, second))
    shapes = [model.tensors[name].shape if name in model.tensors else None for model in (first, second)]
    if None in counts or counts[0] == counts[1] or shapes[0] is None or shapes[1] is None:
        return False
    return len(shapes[0]) == len(shapes[1]) and all(
        one == other or (one, other) == counts for one, other in zip(*shapes, strict=True)
    )
