"""Two LoRA adapters of one base model held against each other: the changes that they make, in numbers.

Lengths and angles are those of the whole changes ``s B A``, which are never made: with factors of rank r the inner
product of two of them is the sum over the entries of ``(B1ᵀ B2)`` times ``(A1 A2ᵀ)``, both r x r. Where lengths of rows
are learned on top (DoRA), a change depends on the weight that it is of, so that the base model's weights are read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from fusionlab.advice.adapter_layers import AdapterLayers
from fusionlab.advice.pairs import MATRICES, Kind, Pair, pattern, some
from fusionlab.advice.tensors import Weights
from fusionlab.checkpoints.changes import Change
from fusionlab.errors import InputError
from fusionlab.streaming.adapted import ChangedTensor
from fusionlab.streaming.stored import Raw, Reader

# Of the lengths of two adapters' changes: from here on the longer has nine tenths of their sum's squared length.
_UNEVEN = 3.0
# Numbers of a weight that are read at once, about.
_BLOCK = 2**20


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
    one, other = first.layers, second.layers
    assert one is not None
    assert other is not None
    shared = [module for module in one.changes if module in other.changes]
    for module in shared:
        _refuse_shapes(first, second, one.changes[module], other.changes[module], module)
    found, untold = _measured(one, other)
    kinds: dict[str, list[str]] = {}
    for module in shared:
        kinds.setdefault(pattern(module), []).append(module)
    whole = _kind(MATRICES, [found[module] for module in shared])
    if one.hides or other.hides:
        untold = [*untold, "changes of experts in a stack"]
    return Pair(
        first.name,
        second.name,
        [_kind(kind, [found[module] for module in members]) for kind, members in kinds.items()],
        whole,
        None,
        whole,
        False,
        sorted(one.changes.keys() ^ other.changes.keys()),
        [],
        (_length([x.first for x in found.values()]), _length([x.second for x in found.values()])),
        untold,
    )


def said_of(pair: Pair) -> list[str]:
    """Sentences on what two adapters change.

    Args:
        pair: what was found of them.
    """
    said: list[str] = []
    if pair.lengths is not None and all(pair.lengths):
        one, other = pair.lengths
        angle = pair.whole.angle
        apart = "" if angle is None else f"; angle between the changes {angle:.0f} degrees"
        common = "" if angle is None else " (90: nothing in common, above: they pull apart)"
        said.append(f"Lengths of what {pair.first} and {pair.second} change: {one:.3g} and {other:.3g}{apart}{common}.")
        longer, shorter = (pair.first, pair.second) if one > other else (pair.second, pair.first)
        if (ratio := max(pair.lengths) / min(pair.lengths)) >= _UNEVEN:
            said.append(
                f"The change of {longer} is {ratio:.1f} times as long as that of {shorter}, so their plain sum is "
                f"mostly {longer}'s; --weights gives {shorter} more."
            )
    if pair.untold:
        said.append(
            f"Not counted in: {' and '.join(pair.untold)}, which the base model's weights tell; they are not here, or "
            f"in files that are not read piece by piece."
        )
    if pair.only:
        said.append(f"Only one of {pair.first} and {pair.second} changes {some(pair.only)}.")
    return said


def _measured(one: AdapterLayers, other: AdapterLayers) -> tuple[dict[str, _Products], list[str]]:
    """Each layer that either changes in numbers, and what of them could not be told."""
    found: dict[str, _Products] = {}
    untold: list[str] = []
    with ExitStack() as stack:
        reader: Reader | None = None
        for module in {**one.changes, **other.changes}:
            first, second = one.changes.get(module), other.changes.get(module)
            if not any(change is not None and change.magnitude is not None for change in (first, second)):
                found[module] = _of_factors(first, second)
                continue
            places = [None if change is None else x.rows.get(module) for x, change in ((one, first), (other, second))]
            if one.base is None or sum(map(bool, places)) < sum(map(bool, (first, second))):
                untold = ["lengths of rows that are learned (DoRA)"]
                found[module] = _of_factors(first, second)
                continue
            reader = stack.enter_context(one.base.opened()) if reader is None else reader
            found[module] = _of_rows(partial(reader.raw, module), places, _is_one(first, second))
    return found, untold


def _refuse_shapes(first: Weights, second: Weights, one: Change, other: Change, module: str) -> None:
    shapes = [(change.up.shape[0], change.down[0].numel()) for change in (one, other)]
    if shapes[0] != shapes[1]:
        raise InputError(
            f"{first.name} changes {module} as a weight of shape {shapes[0]}, {second.name} as one of {shapes[1]}; "
            f"expected adapters of one base model"
        )


def _is_one(one: Change | None, other: Change | None) -> bool:
    """True for two changes of the same numbers; not where the ranks differ."""
    if one is None or other is None or one.scale != other.scale:
        return False
    pairs = ((one.up, other.up), (one.down, other.down), (one.magnitude, other.magnitude))
    return all(x is y if x is None or y is None else torch.equal(x, y) for x, y in pairs)


def _of_factors(one: Change | None, other: Change | None) -> _Products:
    """The numbers of two changes of one layer from their factors, without learned lengths."""
    first, second = (0.0 if change is None else _inner(change, change) for change in (one, other))
    inner = 0.0 if one is None or other is None else _inner(one, other)
    return _Products(first, second, inner, _is_one(one, other))


def _of_rows(raw: Raw, places: Sequence[ChangedTensor | None], is_equal: bool) -> _Products:
    """The numbers of two changes of one weight of a base model, which is read once for each."""
    sums = torch.zeros(3, dtype=torch.float64)
    known = next(place for place in places if place is not None)
    step = max(1, _BLOCK // known.row)
    for start in range(0, known.shape[0], step):
        end = min(start + step, known.shape[0])
        empty = torch.zeros((end - start) * known.row, dtype=torch.float64)
        a, b = (empty if place is None else place.difference(raw, start, end).double() for place in places)
        sums += torch.stack((a @ a, b @ b, a @ b))
    return _Products(float(sums[0]), float(sums[1]), float(sums[2]), is_equal)


def _inner(one: Change, other: Change) -> float:
    """The inner product of two changes of one weight, in float64."""
    ups = _wide(one.up).T @ _wide(other.up)
    downs = _wide(one.down) @ _wide(other.down).T
    return one.scale * other.scale * float((ups * downs).sum())


def _wide(factor: Tensor) -> Tensor:
    return factor.flatten(1).double()


def _length(squares: Sequence[float]) -> float:
    """The length of changes together, from their squared lengths."""
    return math.sqrt(max(0.0, math.fsum(squares)))


def _distance(first: float, second: float, inner: float) -> float | None:
    """The distance between changes, relative to the geometric mean of their lengths; None where one alone is zero."""
    if not first and not second:
        return 0.0
    both = math.sqrt(max(0.0, first * second))
    return math.sqrt(max(0.0, first + second - 2 * inner) / both) if both else None


def _kind(name: str, found: Sequence[_Products]) -> Kind:
    first, second, inner = (math.fsum(getattr(one, part) for one in found) for part in ("first", "second", "inner"))
    both, equal = math.sqrt(max(0.0, first * second)), sum(one.is_equal for one in found)
    return Kind(
        name,
        len(found),
        None,
        None,
        None,
        None if not found else 1.0 if equal == len(found) else inner / both if both else None,
        None if not found else 0.0 if equal == len(found) else _distance(first, second, inner),
        equal / len(found) if found else None,
    )
