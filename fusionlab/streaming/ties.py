"""Tied parameters that files hold twice."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fusionlab.streaming.stored import Reader

# Numbers that tell two matrices apart that are not tied, nearly always.
_FIRST = 1024


def second_names(readers: Sequence[Reader]) -> dict[str, str]:
    """Further names of matrices that every model has tied and stores under both names, and the first name of each.

    Most files hold a tied embedding once. Where one holds it twice, its names stay tied: both get one merge. Files do
    not say what is tied: it is what the config allows (``tie_word_embeddings``), as many rows as there are words, and
    the same numbers in each model.

    Args:
        readers: of all models, the base among them.
    """
    first = readers[0].model
    config = dict(first.config.get("text_config") or {}) | dict(first.config)
    words = config.get("vocab_size")
    if config.get("tie_word_embeddings") is False or words is None:
        return {}
    tables = [n for n, t in first.tensors.items() if len(t.shape) == 2 and t.shape[0] == words]
    found: dict[str, str] = {}
    for place, name in enumerate(tables):
        for other in tables[:place]:
            if other not in found and all(_equal(reader, other, name) for reader in readers):
                found[name] = other
                break
    return found


def _equal(reader: Reader, one: str, other: str) -> bool:
    """True if two tensors of a model hold the same numbers."""
    first, second = reader.model.tensors[one], reader.model.tensors[other]
    if (first.shape, first.dtype) != (second.shape, second.dtype):
        return False
    step = _FIRST
    start = 0
    while start < first.count:
        count = min(step, first.count - start)
        if not torch.equal(reader.read(one, start, count), reader.read(other, start, count)):
            return False
        start, step = start + count, 2**20
    return True
