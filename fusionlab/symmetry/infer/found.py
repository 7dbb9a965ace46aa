"""Symmetries of one hidden space, as the search accepts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fusionlab.symmetry.blueprint import LayerScale, Norm
from fusionlab.symmetry.groups import Group, Invertible, Rotary, Scale, Signs
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
        signs: a sign for each coordinate, beside permutations or alone, where no factor or basis holds it.
        rotation: what acts once gains are folded.
        norms: whose gains must be folded for it.
        layer_scales: that must be absorbed for it.
    """

    variable: Variable
    stretches: tuple[Stretch, ...]
    permutation: Action | None = None
    basis: Action | None = None
    factor: Action | None = None
    signs: Action | None = None
    rotation: Action | None = None
    norms: tuple[Norm, ...] = ()
    layer_scales: tuple[LayerScale, ...] = ()

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions that passed."""
        return tuple(a for a in (self.permutation, self.basis, self.factor, self.signs, self.rotation) if a is not None)


def drop_contained(found: list[Found]) -> None:
    """Leave out factors and signs that a larger group on the same parameters holds: of whole heads with bases.

    A factor for each unit of each expert is one of the units, not of the experts too.
    """
    for one in found:
        for other in found:
            if other is not one and other.permutation is not None and one.variable in other.permutation.index:
                if _same_copies(one, one.factor, other, other.factor):
                    one.factor = None
                if any(_same_copies(one, one.signs, other, action) for action in (other.factor, other.signs)):
                    one.signs = None
    for one in found:
        inside = [a for other in found if other is not one for a in other.actions if one.variable in a.index]
        for action in (one.factor or one.basis, one.signs):
            if action is None or not isinstance(action.group, Scale | Signs):
                continue
            if any(
                _holds(larger.group, action.group) and _parameters(larger) >= _parameters(action) for larger in inside
            ):
                one.factor = None if one.factor is action else one.factor
                one.basis = None if one.basis is action else one.basis
                one.signs = None if one.signs is action else one.signs


def _holds(larger: Group, group: Scale | Signs) -> bool:
    """A group with an element for each block holds one that multiplies whole blocks."""
    if isinstance(group, Signs):
        return isinstance(larger, Invertible | Rotary | Signs) or (isinstance(larger, Scale) and larger.signed)
    return isinstance(larger, Invertible | Rotary)


def _same_copies(one: Found, action: Action | None, other: Found, larger: Action | None) -> bool:
    """Two actions have an element for each of the same places."""
    if action is None or larger is None:
        return False
    return {one.variable, *action.index} == {other.variable, *larger.index}


def _parameters(action: Action) -> set[str]:
    """The parameters that it acts on; heads and what is inside of them may be dimensions of their own."""
    return {name for (name, _, _), power in action.powers.items() if power}
