"""Two LoRA adapters of one base model held against each other: the changes that they make, in numbers.

Lengths and angles are those of the whole changes ``s B A``, which are never made: with factors of rank r the inner
product of two of them is the sum over the entries of ``(B1ᵀ B2)`` times ``(A1 A2ᵀ)``, both r x r.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fusionlab.advice.pairs import MATRICES, Kind, Pair, pattern
from fusionlab.advice.tensors import Weights
from fusionlab.checkpoints.changes import Change
from fusionlab.errors import InputError


@dataclass(frozen=True)
class _Products:
    """Squared lengths of two changes, their inner product, and whether their factors are the same."""

    first: float = 0.0
    second: float = 0.0
    inner: float = 0.0
    is_equal: bool = True


def compare_adapters(first: Weights, second: Weights) -> Pair:
    """Hold two adapters against each other; of what they share, each layer's change counts.

    Args:
        first: one, with its changes.
        second: the other, of the same base model.

    Raises:
        InputError: both change a layer, in different shapes.
    """
    shared = [module for module in first.changes if module in second.changes]
    found = {module: _products(first, second, module) for module in shared}
    kinds: dict[str, list[str]] = {}
    for module in shared:
        kinds.setdefault(pattern(module), []).append(module)
    whole = _kind(MATRICES, list(found.values()))
    return Pair(
        first.name,
        second.name,
        [_kind(kind, [found[module] for module in members]) for kind, members in kinds.items()],
        whole,
        None,
        whole,
        False,
        sorted(first.changes.keys() ^ second.changes.keys()),
        [],
        (_length(first.changes), _length(second.changes)),
    )


def _products(first: Weights, second: Weights, module: str) -> _Products:
    one, other = first.changes[module], second.changes[module]
    shapes = [(change.up.shape[0], change.down[0].numel()) for change in (one, other)]
    if shapes[0] != shapes[1]:
        raise InputError(
            f"{first.name} changes {module} as a weight of shape {shapes[0]}, {second.name} as one of {shapes[1]}; "
            f"expected adapters of one base model"
        )
    # False where the ranks differ.
    is_equal = torch.equal(one.up, other.up) and torch.equal(one.down, other.down) and one.scale == other.scale
    return _Products(_inner(one, one), _inner(other, other), _inner(one, other), is_equal)


def _inner(one: Change, other: Change) -> float:
    """The inner product of two changes of one weight, in float64."""
    ups = _wide(one.up).T @ _wide(other.up)
    downs = _wide(one.down) @ _wide(other.down).T
    return one.scale * other.scale * float((ups * downs).sum())


def _wide(factor: Tensor) -> Tensor:
    return factor.flatten(1).double()


def _length(changes: Mapping[str, Change]) -> float:
    """The length of all changes of one adapter together."""
    return math.sqrt(max(0.0, math.fsum(_inner(change, change) for change in changes.values())))


def _kind(name: str, found: Sequence[_Products]) -> Kind:
    first, second, inner = (math.fsum(getattr(one, part) for one in found) for part in ("first", "second", "inner"))
    both, is_equal = math.sqrt(max(0.0, first * second)), all(one.is_equal for one in found)
    return Kind(
        name,
        len(found),
        None,
        None,
        None,
        1.0 if is_equal else inner / both if both else 0.0,
        0.0 if is_equal or not both else math.sqrt(max(0.0, first + second - 2 * inner) / both),
        sum(one.is_equal for one in found) / len(found) if found else 1.0,
    )
