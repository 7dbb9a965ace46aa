"""Shares of a matching: each process holds the parameters of some layers, and streams run through all of them.

A block whose parameters lie in one process (heads, units of a layer) is solved there, and nobody is told before the
end. What runs through the layers of several (a residual stream) is correlated by each over its own parameters; one
reduction adds that up, and one process solves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.cluster.hierarchy import DisjointSet
from torch import Tensor

from fusionlab.matching.blocks import Block
from fusionlab.matching.team import ALONE, Team
from fusionlab.symmetry import Blueprint
from fusionlab.types import State


@dataclass(frozen=True)
class Share:
    """The part of a matching that is done in this process.

    Attributes:
        names: of the parameters that lie here.
        streams: the spaces whose parameters may lie in several processes.
        team: the processes; one alone where there is too little to share.
    """

    names: frozenset[str]
    streams: frozenset[str] = frozenset()
    team: Team = ALONE

    def joined(self, elements: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The elements that all processes found; those of streams, which all know, from the first."""
        is_first = self.team.rank == 0
        return self.team.joined({n: e for n, e in elements.items() if is_first or n not in self.streams})


def share_of(groups: Sequence[Sequence[Block]], blueprint: Blueprint, state: State, team: Team) -> Share:
    """The share of this process; together the processes hold every parameter once, about as many numbers each.

    Args:
        groups: all that is solved.
        blueprint: of the models.
        state: parameters by name, of which only sizes are looked at.
        team: the processes.
    """
    found = [block for group in groups for block in group]
    touched = list(blueprint.touching(name for block in found for name in block.names))
    if team.size == 1:
        return Share(frozenset(touched))
    streams = [block for block in found if _may_be_shared(block)]
    together: DisjointSet = DisjointSet(touched)
    whole = [list(blueprint.touching(block.names)) for block in found if block not in streams]
    # Lengths of modules are measured where they lie (`MatchOptions.relative`).
    modules: dict[str, list[str]] = {}
    for name in touched:
        modules.setdefault(name.rpartition(".")[0], []).append(name)
    for names in (*whole, *modules.values()):
        for other in names[1:]:
            together.merge(names[0], other)
    parts: dict[str, list[str]] = {}
    for name in touched:
        parts.setdefault(together[name], []).append(name)
    if len(parts) < team.size:
        return Share(frozenset(touched))
    sizes = {first: sum(state[name].numel() for name in names) for first, names in parts.items()}
    held: list[list[str]] = [[] for _ in range(team.size)]
    load = [0] * team.size
    for first in sorted(parts, key=lambda first: -sizes[first]):
        # No process is left without a parameter, whatever their sizes.
        rank = min(range(team.size), key=lambda rank: (bool(held[rank]), load[rank]))
        held[rank] += parts[first]
        load[rank] += sizes[first]
    spaces = frozenset(name for block in streams for name in block.names)
    return Share(frozenset(held[team.rank]), spaces, team)


def _may_be_shared(block: Block) -> bool:
    """True if a block runs through layers and is correlated by a sum over parameters: one rotation, or plain units."""
    return block.spaces[0].layer is None and (block.is_units or (block.permutation is None and not block.nested))
