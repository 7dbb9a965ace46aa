"""The straight line between two models, as it was measured."""

import math
from dataclasses import dataclass
from html import escape

import numpy as np

from fusionlab.evaluation.rows import UNMATCHED, Domain


@dataclass(frozen=True)
class Curve:
    """Loss and main metric on the straight line from the anchor to a source, in weight space.

    Args:
        source: name of the model at position 1.
        anchor: name of the model at position 0.
        matching: how the source was matched to the anchor; ``"none"`` if it was not.
        data_set: the evaluated data set.
        domain: ``"in"`` or ``"out"``, as in `Row`.
        positions: strictly increasing, from 0 (the anchor) to 1 (the source).
        loss: mean loss at each position.
        score: the metric at each position.
        metric: which one: the data set's main metric, such as ``"accuracy"``.

    Raises:
        ValueError: if the lengths differ or the positions do not run from 0 to 1.
    """

    source: str
    anchor: str
    matching: str
    data_set: str
    domain: Domain
    positions: tuple[float, ...]
    loss: tuple[float, ...]
    score: tuple[float, ...]
    metric: str = "accuracy"

    def __post_init__(self) -> None:
        if not len(self.positions) == len(self.loss) == len(self.score):
            raise ValueError("a curve needs one loss and one score for each position")
        rises = all(left < right for left, right in zip(self.positions, self.positions[1:], strict=False))
        if len(self.positions) < 2 or self.positions[0] != 0 or self.positions[-1] != 1 or not rises:
            raise ValueError(f"the positions of a curve must rise from 0 to 1, not {self.positions}")

    def __repr__(self) -> str:
        matched = "unmatched" if self.matching == UNMATCHED else f"matched by {self.matching}"
        return (
            f"Curve({self.anchor} to {self.source}, {matched}, on {self.data_set}: barrier {self.barrier:.3f}, loss "
            f"{self.loss[0]:.3f} and {self.loss[-1]:.3f} at the ends, {self.midpoint_loss:.3f} half way)"
        )

    def _repr_html_(self) -> str:
        words = escape(repr(self).removeprefix("Curve(").removesuffix(")"))
        return f"<figure>{loss_picture(self, words)}<figcaption>{words}</figcaption></figure>"

    @property
    def barrier(self) -> float:
        """The largest rise of the loss above the straight line between the losses of the two ends.

        The maximum over the positions t of ``loss(t) - ((1 - t) loss(0) + t loss(1))`` (Frankle et al., "Linear
        mode connectivity and the lottery ticket hypothesis", 2020; in this form Entezari et al., "The role of
        permutation invariance in linear mode connectivity of neural networks", 2022). Both ends take part in the
        maximum, so it is never below 0: a curve that lies under its chord has no barrier. NaN if a loss is NaN.
        """
        start, end = self.loss[0], self.loss[-1]
        if not math.isfinite(start) or not math.isfinite(end):
            return math.nan
        heights = [
            loss - ((1 - position) * start + position * end)
            for position, loss in zip(self.positions[1:-1], self.loss[1:-1], strict=True)
        ]
        # max() would pass over a NaN, depending on where it stands.
        return math.nan if any(map(math.isnan, heights)) else max([0.0, *heights])

    @property
    def midpoint_loss(self) -> float:
        """Loss half way, interpolated linearly if 0.5 is not among the positions."""
        return float(np.interp(0.5, self.positions, self.loss))

    @property
    def midpoint_score(self) -> float:
        """The metric half way, interpolated linearly if 0.5 is not among the positions."""
        return float(np.interp(0.5, self.positions, self.score))


def loss_picture(curve: Curve, words: str) -> str:
    """The losses of a curve as a small picture in SVG, in the colour of the text around it.

    Args:
        curve: of which losses that are no numbers are left out.
        words: what it shows, escaped.
    """
    width, height, edge = 320, 160, 12
    known = [(t, loss) for t, loss in zip(curve.positions, curve.loss, strict=True) if math.isfinite(loss)]
    low, high = (min(loss for _, loss in known), max(loss for _, loss in known)) if known else (0.0, 1.0)
    spread = high - low or 1.0
    points = [
        (edge + t * (width - 2 * edge), height - edge - (loss - low) / spread * (height - 2 * edge))
        for t, loss in known
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="currentColor"/>' for x, y in points)
    chord = " ".join(f"{x:.1f},{y:.1f}" for x, y in (points[0], points[-1])) if points else ""
    return (
        f'<svg role="img" viewBox="0 0 {width} {height}" width="{width}" height="{height}"><title>{words}</title>'
        f'<polyline points="{chord}" fill="none" stroke="currentColor" stroke-opacity=".35" stroke-dasharray="4 3"/>'
        f'<polyline points="{line}" fill="none" stroke="currentColor" stroke-width="1.5"/>{dots}</svg>'
    )
