"""Memory that a streamed merge holds: numbers of the stretches in work."""

from __future__ import annotations

from fusionlab.merging.ingredients import PIECE
from fusionlab.merging.method import MergeMethod
from fusionlab.streaming.pipeline import MOST

# Numbers that are read and written at once.
STRETCH = 8 * PIECE


def held(count: int, models: int, method: MergeMethod) -> int:
    """About how many numbers of 4 bytes merging a stretch holds in memory.

    Args:
        count: numbers of the stretch in one model.
        models: how many.
        method: that merges them.
    """
    if method.unit == "number":
        return count * (models + 2)
    fixed, each = method.holds
    return count * (fixed + each * models)


def memory_of(largest: int, models: int, method: MergeMethod) -> int:
    """About how many bytes a streamed merge holds at most, beside torch itself.

    Args:
        largest: numbers of the largest tensor.
        models: how many.
        method: that merges them.
    """
    count = min(largest, STRETCH) if method.unit == "number" else largest
    return 4 * max(MOST, held(count, models, method))
