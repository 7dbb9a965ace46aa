"""Means over models as tables show them: their intervals, and of how many seeds of learning they are."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from statistics import fmean, stdev

from scipy.stats import t as student


def half_width(values: Sequence[float]) -> float:
    """Half the width of the 95 % interval of a mean, by Student's t; at least two values."""
    return float(student.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))


def reached(values: Sequence[float]) -> str:
    """A mean in percent, with half the width of its interval where there are three values or more."""
    half = f" ± {100 * half_width(values):.1f}" if len(values) > 2 else ""
    return f"{100 * fmean(values):.1f}{half}"


def nats(values: Sequence[float]) -> str:
    """A mean of losses, with half the width of its interval where there are three values or more."""
    half = f" ± {half_width(values):.3f}" if len(values) > 2 else ""
    return f"{fmean(values):.3f}{half}"


def seeds_of(pairs: Iterable[Collection[object]]) -> str:
    """How many seeds of learning there are of a pair, from the fewest to the most.

    Args:
        pairs: of each what was measured, at least one pair.
    """
    counts = {len(measured) for measured in pairs}
    return " to ".join(map(str, sorted({min(counts), max(counts)})))
