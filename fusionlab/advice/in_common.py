"""The base of two adapters, the heads of two classifiers and the inputs of two models, however they are written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fusionlab import misfits
from fusionlab.advice.tensors import Weights

# Entries of a config that say which inputs a model takes, and that no matching changes.
_INPUTS = (
    "max_position_embeddings", "n_positions", "n_ctx", "type_vocab_size", "image_size", "patch_size", "num_channels",
    "num_mel_bins", "max_source_positions",
)  # fmt: skip


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


def other_inputs(first: Weights, second: Weights, shapes: Sequence[str]) -> list[str]:
    """The entries of two configs by which a parameter has a row for each position, patch or the like, and other ones.

    Args:
        first: one model.
        second: the other.
        shapes: names of parameters whose shapes differ.

    Returns:
        Each entry with both values; nothing where heads or tokens explain the shapes.
    """
    tokens = tuple(model.config.get("vocab_size") for model in (first, second))
    odd = [
        name for name in shapes if not is_head(name, first, second) and not _is_of_tokens(name, tokens, first, second)
    ]
    values = {name: (first.config.get(name), second.config.get(name)) for name in _INPUTS}
    differing = {name: pair for name, pair in values.items() if None not in pair and pair[0] != pair[1]}
    return [f"{name}: {one} and {other}" for name, (one, other) in differing.items()] if odd else []


def _is_of_tokens(name: str, tokens: Sequence[object], first: Weights, second: Weights) -> bool:
    """True for a parameter with one row for each token."""
    shapes = [tuple(model.tensors[name].shape) if name in model.tensors else () for model in (first, second)]
    return all(count in shape for count, shape in zip(tokens, shapes, strict=True))
