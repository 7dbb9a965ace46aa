"""Symmetries of one hidden space, as the search accepts them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fusionlab.symmetry.blueprint import LayerScale, Norm
from fusionlab.symmetry.groups import Group, Invertible, Rotary, Scale, Signs
from fusionlab.symmetry.infer.dims import Stretch, Variable

Powers = Mapping[Stretch, int]
_EITHER = Scale(1, signed=True)


@dataclass(frozen=True)
class Action:
    """A group that passed.

    Attributes:
        group: acting on one copy.
        powers: by stretch +1 or -1 (by its dual), of a factor any power.
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
        factors: each a factor for each coordinate, beside permutations; no powers are combinations of others'.
        signs: a sign for each coordinate, beside permutations or alone, where no factors or basis hold it.
        rotation: what acts once gains are folded.
        norms: whose gains must be folded for it.
        layer_scales: that must be absorbed for it.
        held: powers that multiply whole blocks and nothing else, so that what acts inside of these holds them.
    """

    variable: Variable
    stretches: tuple[Stretch, ...]
    permutation: Action | None = None
    basis: Action | None = None
    signs: Action | None = None
    rotation: Action | None = None
    norms: tuple[Norm, ...] = ()
    layer_scales: tuple[LayerScale, ...] = ()
    factors: list[Action] = field(default_factory=list)
    held: list[Powers] = field(default_factory=list)

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions that passed."""
        found = (self.permutation, self.basis, *self.factors, self.signs, self.rotation)
        return tuple(action for action in found if action is not None)

    @property
    def scales(self) -> list[Powers]:
        """The powers of its sets of factors, and those that are held inside."""
        return [*self.held, *(action.powers for action in self.factors)]

    @property
    def turning(self) -> list[Powers]:
        """The powers of what turns coordinates round: signs, and factors of either sign."""
        signed = [action.powers for action in self.factors if isinstance(action.group, Scale) and action.group.signed]
        return [*self.held, *signed, *([] if self.signs is None else [self.signs.powers])]

    @property
    def beside(self) -> tuple[Action, ...]:
        """Those that act on coordinates one by one, beside their permutations."""
        return tuple(action for action in (self.basis, *self.factors, self.signs) if action is not None)

    def admits(self, action: Action) -> bool:
        """True if factors or signs may be beside those that there are: on one stretch all have the same copies."""
        meeting = (other for other in self.beside if not other.powers.keys().isdisjoint(action.powers))
        return all(other.index == action.index for other in meeting)

    def drop(self, dropped: Action) -> None:
        """Leave out one of the actions that act on coordinates one by one."""
        self.factors = [action for action in self.factors if action is not dropped]
        self.basis = None if self.basis is dropped else self.basis
        self.signs = None if self.signs is dropped else self.signs


def drop_contained(found: list[Found]) -> None:
    """Leave out factors and signs that a larger group on the same parameters holds: of whole heads with bases.

    A factor for each unit of each expert is one of the units, not of the experts too.
    """
    for one in found:
        for other in found:
            if other is not one and other.permutation is not None and one.variable in other.permutation.index:
                for action in (*one.factors, one.signs):
                    larger = other.factors if action is not one.signs else (*other.factors, other.signs)
                    if action is not None and any(_same_copies(one, action, other, held) for held in larger):
                        one.drop(action)
    for one in found:
        inside = with_copies(one.variable, found)
        for action in one.beside:
            if isinstance(action.group, Scale | Signs) and is_held(action.powers, inside, action.group):
                one.drop(action)


def with_copies(variable: Variable, found: Iterable[Found]) -> list[Action]:
    """The actions of other spaces that have an element for each block of one."""
    return [a for other in found if other.variable is not variable for a in other.actions if variable in a.index]


def is_held(powers: Powers, inside: Iterable[Action], group: Scale | Signs = _EITHER) -> bool:
    """True if what acts inside of blocks, on the same parameters, holds numbers that multiply whole blocks.

    Args:
        powers: of the numbers.
        inside: acting inside of the blocks.
        group: of the numbers.
    """
    names = {name for (name, _, _), power in powers.items() if power}
    larger = [_parameters(action) for action in inside if _holds(action.group, group)]
    if isinstance(group, Signs):
        # Several turned round together: a fused matrix of queries, keys and values, by both bases of a head.
        larger.append(set[str]().union(*(own for own in larger if own <= names)))
    return any(own >= names for own in larger)


def _holds(larger: Group, group: Scale | Signs) -> bool:
    """A group with an element for each block holds one that multiplies whole blocks."""
    if isinstance(group, Signs):
        return isinstance(larger, Invertible | Rotary | Signs) or (isinstance(larger, Scale) and larger.signed)
    return isinstance(larger, Invertible | Rotary) or (isinstance(larger, Scale) and larger.signed >= group.signed)


def _same_copies(one: Found, action: Action, other: Found, larger: Action | None) -> bool:
    """Two actions have an element for each of the same places."""
    if larger is None or _parameters(action).isdisjoint(_parameters(larger)):
        return False
    return {one.variable, *action.index} == {other.variable, *larger.index}


def _parameters(action: Action) -> set[str]:
    """The parameters that it acts on; heads and what is inside of them may be dimensions of their own."""
    return {name for (name, _, _), power in action.powers.items() if power}
