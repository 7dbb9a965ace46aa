"""Symmetries of one hidden space, as the search accepts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fusionlab.symmetry.blueprint import LayerScale, Norm
from fusionlab.symmetry.groups import Group, Invertible, Rotary, Scale
from fusionlab.symmetry.infer.dims import Stretch, Variable

Powers = Mapping[Stretch, int]


@dataclass(frozen=True)
class Action:
    """A group that passed.

    Attributes:
        group: acting on one copy.
        powers: by stretch +1 or -1 (by its dual).
        index: the variables that its copies are indexed by, outermost first.
    """

    group: Group
    powers: Powers
    index: tuple[Variable, ...]


@dataclass
class Found:
    """The symmetry of one hidden space.

    Attributes:
        variable: the space.
        stretches: where it runs through parameters.
        permutation: its coordinates may be permuted.
        basis: what else acts on its coordinates as the model stands: a basis of its own, planes, factors of planes.
        factor: a factor for each coordinate, beside permutations.
        rotation: what acts once gains are folded.
        norms: whose gains must be folded for it.
        layer_scales: that must be absorbed for it.
    """

    variable: Variable
    stretches: tuple[Stretch, ...]
    permutation: Action | None = None
    basis: Action | None = None
    factor: Action | None = None
    rotation: Action | None = None
    norms: tuple[Norm, ...] = ()
    layer_scales: tuple[LayerScale, ...] = ()

    @property
    def actions(self) -> tuple[Action, ...]:
        """All that passed."""
        return tuple(a for a in (self.permutation, self.basis, self.factor, self.rotation) if a is not None)


def drop_contained(found: list[Found]) -> None:
    """Leave out factors that a larger group on the same dimensions holds: of whole heads where heads have bases.

    A factor for each unit of each expert is one of the units, not of the experts too.
    """
    for one in found:
        for other in found:
            if one.factor is None or other.factor is None or other is one or other.permutation is None:
                continue
            same = {one.variable, *one.factor.index} == {other.variable, *other.factor.index}
            if same and one.variable in other.permutation.index:
                one.factor = None
    places = {
        one.variable: {stretch[:2] for stretch, power in one.basis.powers.items() if power}
        for one in found
        if one.basis is not None
    }
    for one in found:
        action = one.factor if one.factor is not None else one.basis
        if action is None or not isinstance(action.group, Scale):
            continue
        own = {stretch[:2] for stretch, power in action.powers.items() if power}
        for other in found:
            if other.basis is None or other is one or one.variable not in other.basis.index:
                continue
            if isinstance(other.basis.group, Invertible | Rotary) and places[other.variable] >= own:
                one.factor = None
                one.basis = None if one.basis is action else one.basis
                break
