"""Claims that a comparison supports: matching helps, costs or makes no difference, and how sure that is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fusionlab.evaluation.bootstrap import FEWEST
from fusionlab.evaluation.comparison import Comparison, GroupComparison
from fusionlab.evaluation.metrics import is_fraction, lower_is_better
from fusionlab.evaluation.wording import format_difference, shown_decimals, shown_difference

Effect = Literal["helps", "costs", "makes no difference", "is open", "diverges"]
HELPS: Effect = "helps"
COSTS: Effect = "costs"
SAME: Effect = "makes no difference"
OPEN: Effect = "is open"
DIVERGED: Effect = "diverges"


@dataclass(frozen=True)
class Claim:
    """The claim that a comparison supports, in the digits that a reader sees.

    Attributes:
        comparison: matched and unmatched by one method.
        diverged: each side (``unmatched``, ``matched``) that is not a number, with the score that is none.
    """

    comparison: Comparison | GroupComparison
    diverged: tuple[tuple[str, str], ...] = ()

    @property
    def effect(self) -> Effect:
        """The side of 0 that the interval of the difference lies on: the good one, the bad one, or both.

        ``is open`` where there is no interval; ``diverges`` where a side is not a number.
        """
        found = self.comparison
        if self.diverged or not math.isfinite(found.difference):
            return DIVERGED
        if found.lower is None or found.upper is None:
            return OPEN
        lower, upper = (shown_difference(found.metric, end, self._decimals) for end in (found.lower, found.upper))
        if lower > 0 or upper < 0:
            return HELPS if (lower > 0) != lower_is_better(found.metric) else COSTS
        return SAME

    @property
    def interval(self) -> str:
        """The interval in words, such as ``95 % interval +1.2 to +3.4 points, 360 examples``; why there is none."""
        found = self.comparison
        if found.lower is None or found.upper is None:
            return self._why_no_interval()
        lower = format_difference(found.metric, found.lower, self._decimals)
        upper = format_difference(found.metric, found.upper, self._decimals)
        return f"95 % interval {lower} to {upper}{self._unit}, {self.units}"

    @property
    def units(self) -> str:
        """The number and kind of the resampled units: ``360 examples``."""
        found = self.comparison
        if isinstance(found, GroupComparison):
            return _count(found.clusters, "independent group")
        return _count(found.examples, "example")

    @property
    def difference(self) -> str:
        """The difference with its sign and unit."""
        return format_difference(self.comparison.metric, self.comparison.difference, self._decimals, unit=True)

    def allowed(self) -> str:
        """The largest gain and loss that an interval which holds 0 still allows."""
        found = self.comparison
        assert found.lower is not None
        assert found.upper is not None
        ends = {"gain": max(found.upper, 0.0), "loss": max(-found.lower, 0.0)}
        if lower_is_better(found.metric):
            ends = {"gain": ends["loss"], "loss": ends["gain"]}
        known = {
            name: format_difference(found.metric, end, self._decimals, unit=True, sign=False)
            for name, end in ends.items()
            if shown_difference(found.metric, end, self._decimals) > 0
        }
        lower = format_difference(found.metric, found.lower, self._decimals)
        span = f"{lower} to {format_difference(found.metric, found.upper, self._decimals)}{self._unit}"
        if not known:
            return f"the 95 % interval of the difference, {span}, allows none that would show"
        largest = " and ".join(f"a {name} of up to {end}" for name, end in known.items())
        return f"the 95 % interval of the difference, {span}, still allows {largest}"

    @property
    def _decimals(self) -> int:
        found = self.comparison
        return shown_decimals(found.metric, found.unmatched, found.matched)

    @property
    def _unit(self) -> str:
        return " points" if is_fraction(self.comparison.metric) else ""

    def _why_no_interval(self) -> str:
        found = self.comparison
        if isinstance(found, GroupComparison):
            ends = (format_difference(found.metric, end, self._decimals) for end in (found.smallest, found.largest))
            lower, upper = ends
            apart = _count(found.clusters, "cluster")
            return (
                f"{_count(found.pairs, 'difference')} from {lower} to {upper}{self._unit}, which only describe these "
                f"groups: they fall into {apart} without a common end model, and an interval needs {FEWEST}"
            )
        if not found.examples:
            return "no interval was measured"
        return f"{_count(found.examples, 'example')}, for which there is no interval"


def _count(count: int, word: str) -> str:
    return f"{count:,} {word if count == 1 else word + 's'}"
