"""Distances to the anchor, by kind of space and layer and of whole models, as plain data."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Distance:
    """Euclidean distance to the anchor of the parameters that belong to one kind of space in one layer.

    Every number of a model counts for one role and layer, so that the squares of all add up to the whole model's.

    Args:
        source: name of the matched model.
        anchor: name of the model it was matched to.
        matching: how.
        role: kind of space, such as ``"attention.qk"``, ``"attention.vo"``, ``"ffn"``.
        layer: index from 0, or None for parameters that are in no layer.
        before: distance of the unmatched source, at least 0. Where the matching brings models into a gauge, of both
            models in that gauge: what the gauge alone changes is no effect of matching.
        after: distance of the matched source, at least 0, in the same gauge.
        as_given: distance of both models as they come, where there is a gauge; None where there is none, and `before`
            is this distance.
    """

    source: str
    anchor: str
    matching: str
    role: str
    layer: int | None
    before: float
    after: float
    as_given: float | None = None

    @property
    def given(self) -> float:
        """The distance of both models as they come."""
        return self.before if self.as_given is None else self.as_given


@dataclass(frozen=True)
class TotalDistance:
    """Euclidean distance of a whole model to the anchor.

    Attributes:
        anchor: name of the model that it was matched to.
        source: name of the matched model.
        matching: how.
        before: of the unmatched source, both models in the matching's gauge.
        after: of the matched source, in that gauge.
        as_given: of both models as they come; None where the matching has no gauge, and `before` is this distance.
    """

    anchor: str
    source: str
    matching: str
    before: float
    after: float
    as_given: float | None

    @property
    def given(self) -> float:
        """The distance of both models as they come."""
        return self.before if self.as_given is None else self.as_given

    @staticmethod
    def of(parts: Sequence[Distance]) -> "TotalDistance":
        """The distance that parts of one pair in one matching sum to, squared."""
        first = parts[0]
        before, after, given = (
            math.hypot(*values)
            for values in ([d.before for d in parts], [d.after for d in parts], [d.given for d in parts])
        )
        gauged = any(d.as_given is not None for d in parts)
        return TotalDistance(first.anchor, first.source, first.matching, before, after, given if gauged else None)


def by_pair(totals: Sequence[TotalDistance]) -> dict[tuple[str, str], list[TotalDistance]]:
    """Total distances by (anchor, source), in order of appearance."""
    found: dict[tuple[str, str], list[TotalDistance]] = {}
    for total in totals:
        found.setdefault((total.anchor, total.source), []).append(total)
    return found


def by_gauge(totals: Sequence[TotalDistance]) -> list[list[TotalDistance]]:
    """The matchings of one pair that have a gauge, those with the same gauge together: unmatched, they are as far."""
    found: dict[float, list[TotalDistance]] = {}
    for total in totals:
        if total.as_given is not None:
            found.setdefault(total.before, []).append(total)
    return list(found.values())
