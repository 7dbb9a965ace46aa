"""A digest of tensors and of what holds them, by which two searches are told apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor


def digest_of(*values: Any) -> str:
    """A digest of values: every bit of tensors with their types and shapes, numbers and texts, and what holds these.

    Args:
        values: tensors, mappings, iterables of batches, data classes, and what ``repr`` tells apart.
    """
    digest = hashlib.blake2b(digest_size=16)
    for value in values:
        _add(digest, value)
    return digest.hexdigest()


def _add(digest: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        tensor = value.detach().cpu().contiguous()
        digest.update(f"tensor {tuple(tensor.shape)} {tensor.dtype};".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    elif value is None or isinstance(value, str | bytes | int | float):
        digest.update(f"{type(value).__name__} {value!r};".encode())
    elif isinstance(value, Mapping):
        digest.update(b"{")
        for key in sorted(value, key=str):
            digest.update(f"{key!r}:".encode())
            _add(digest, value[key])
        digest.update(b"}")
    elif is_dataclass(value):
        _add(digest, {field.name: getattr(value, field.name) for field in fields(value)})
    elif isinstance(value, set | frozenset):
        _add(digest, sorted(map(repr, value)))
    elif isinstance(value, Iterable):
        digest.update(b"[")
        for each in value:
            _add(digest, each)
        digest.update(b"]")
    else:
        digest.update(f"{type(value).__name__} {value!s};".encode())
