"""A space that must be found, and where."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from torch import nn

from fusionlab.symmetry import Blueprint
from fusionlab.symmetry.axes import spaces_of
from fusionlab.symmetry.groups import Copies, Group

# A parameter's name and one of its dimensions.
Place = tuple[str, int]


@dataclass(frozen=True)
class Demand:
    """A space that must be found.

    Attributes:
        group: acting on one copy.
        at: every dimension of a parameter that it must run through.
        copies: how many it has, by what they are indexed by.
        folded: it is there once gains are folded.
        free: parameters that may be among `at` or not.
    """

    group: Group
    at: frozenset[Place]
    copies: Copies = ()
    folded: bool = False
    free: frozenset[str] = frozenset()

    def inside(self, module: str) -> Demand:
        """The same of a module by that name in a larger one."""
        return replace(self, at=frozenset(within(module, self.at)), free=frozenset(f"{module}.{n}" for n in self.free))

    def is_met(self, description: Blueprint) -> bool:
        """Some space is the one that is demanded."""
        known = description.after_folding or description if self.folded else description
        return any(
            space.group == self.group
            and space.copies == self.copies
            and self._only(places_of(known, space.name)) == self._only(self.at)
            for space in known.spaces.values()
        )

    def _only(self, places: Iterable[Place]) -> set[Place]:
        return {place for place in places if place[0] not in self.free}

    def __str__(self) -> str:
        when = " after folding" if self.folded else ""
        return f"{self.group} x {self.copies} on {sorted(self.at)}{when}"


def places_of(description: Blueprint, space: str) -> set[Place]:
    """Every dimension of a parameter that a space runs through."""
    return {
        (name, dim)
        for name, axes in description.touching([space]).items()
        for dim, axis in enumerate(axes)
        if space in spaces_of(axis)
    }


def within(module: str, places: Iterable[Place]) -> set[Place]:
    """Places in a module by that name of a larger one."""
    return {(f"{module}.{name}", dim) for name, dim in places}


def linear(name: str, layer: nn.Linear | nn.Conv2d, dim: int) -> set[Place]:
    """Where a linear layer writes (0), its bias included, or reads (1)."""
    return {(f"{name}.weight", dim)} | ({(f"{name}.bias", 0)} if dim == 0 and layer.bias is not None else set())


def told(description: Blueprint) -> str:
    """Every space with its places, to be shown where a demand is not met."""
    lines = [
        f"{'folded ' if known.folded else ''}{space.name}: {space.group} x {space.copies} on "
        f"{sorted(places_of(known, space.name))}"
        for known in (description, description.after_folding)
        if known is not None
        for space in known.spaces.values()
    ]
    return "\n".join((*lines, *description.notes))
