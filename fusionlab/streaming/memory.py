"""Memory that a streamed merge holds: numbers of the stretches in work."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from fusionlab.merging.ingredients import PIECE
from fusionlab.merging.method import MergeMethod
from fusionlab.streaming.pipeline import MOST

# Numbers that are read and written at once.
STRETCH = 8 * PIECE


def held(shape: Sequence[int], models: int, method: MergeMethod) -> int:
    """About how many numbers of 4 bytes merging a stretch holds in memory.

    Args:
        shape: of the stretch in one model: of a parameter, or the count of some of its numbers.
        models: how many.
        method: that merges them.
    """
    count = math.prod(shape)
    if method.unit == "number":
        return count * (models + 2)
    if callable(method.holds):
        return math.ceil(count * method.holds(shape, models))
    fixed, each = method.holds
    return count * (fixed + each * models)


def memory_of(shapes: Collection[Sequence[int]], models: int, method: MergeMethod) -> int:
    """About how many bytes a streamed merge holds at most, beside torch itself.

    Args:
        shapes: of all tensors.
        models: how many.
        method: that merges them.
    """
    if method.unit == "number":
        shapes = [(min(STRETCH, max(map(math.prod, shapes), default=0)),)]
    return 4 * max([MOST, *(held(shape, models, method) for shape in shapes)])
