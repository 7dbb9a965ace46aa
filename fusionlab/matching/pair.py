"""Two models to be matched."""

from dataclasses import dataclass

from fusionlab.matching.keeping import IN_MEMORY, Keeper
from fusionlab.matching.team import ALONE, Team
from fusionlab.statistics import Activations
from fusionlab.symmetry import Blueprint
from fusionlab.types import State


@dataclass(frozen=True)
class Pair:
    """A model that is moved and one that keeps its basis, both in the gauge.

    Attributes:
        source: parameters by name of the one that is moved, stacks as one; not modified.
        anchor: of the other.
        blueprint: of both.
        activations: of both, in this order, at the same rows of the same data; None where nothing needs them.
        keeper: of what is computed from both.
        team: processes that match them together.
    """

    source: State
    anchor: State
    blueprint: Blueprint
    activations: tuple[Activations, Activations] | None = None
    keeper: Keeper = IN_MEMORY
    team: Team = ALONE

    def __post_init__(self) -> None:
        for name in ("source", "anchor"):
            object.__setattr__(self, name, self.blueprint.stacked(getattr(self, name)))
