"""The loss on the plane through three models in weight space (the paper's figure 5), as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from fusionlab.evaluation.rows import Domain

Corners = tuple[tuple[float, float], tuple[float, float], tuple[float, float]]


@dataclass(frozen=True)
class Plane:
    """The loss on a grid in the plane through three models, for one matching and data set.

    Attributes:
        models: their names, the anchor first.
        matching: of the models; ``"none"`` if there was none.
        data_set: the evaluated data set.
        domain: ``"in"`` or ``"out"``, as in `Row`.
        corners: where the models lie, in units of weight space, the anchor at (0, 0) and the next at (d, 0).
        across: the first coordinates of the grid, increasing.
        upwards: the second ones.
        loss: by second and first coordinate.
        at_corners: the loss of the three models.
        at_mean: the loss of their mean.
    """

    models: tuple[str, str, str]
    matching: str
    data_set: str
    domain: Domain
    corners: Corners
    across: tuple[float, ...]
    upwards: tuple[float, ...]
    loss: tuple[tuple[float, ...], ...]
    at_corners: tuple[float, float, float]
    at_mean: float

    @property
    def mean(self) -> tuple[float, float]:
        """The place of the mean of the models."""
        return sum(x for x, _ in self.corners) / 3, sum(y for _, y in self.corners) / 3
