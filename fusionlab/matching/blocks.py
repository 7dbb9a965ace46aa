"""Spaces that are solved together.

A *block* is what is solved together: a continuous space with its copies, a space of permutations, or a space of
permutations together with what it indexes (attention heads with a rotation inside each, experts with their units).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fusionlab.symmetry.axes import chains, spaces_of
from fusionlab.symmetry.blueprint import Blueprint, Space
from fusionlab.symmetry.groups import Permutation


@dataclass(frozen=True)
class Block:
    """Spaces that are solved together.

    Attributes:
        permutation: the space of permutations, or None.
        inner: the continuous spaces; indexed by `permutation` if there is one.
        nested: blocks of permutations that `permutation` indexes, with nothing but factors inside, none of them coupled
            with another or with `inner`; of those that are coupled, the one that more parameters run through alone.
        around: factors of whole blocks of `permutation` that multiply what other such spaces act on, where some of them
            are no factors or blocks are nested: those of plain units are among `inner`.
    """

    permutation: Space | None
    inner: tuple[Space, ...] = ()
    nested: tuple[Block, ...] = ()
    around: tuple[Space, ...] = ()

    @property
    def spaces(self) -> tuple[Space, ...]:
        deeper = (space for block in self.nested for space in block.spaces)
        return (*(() if self.permutation is None else (self.permutation,)), *self.around, *self.inner, *deeper)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(space.name for space in self.spaces)

    @property
    def is_units(self) -> bool:
        """True if this is a plain assignment: nothing inside, or at most a factor for each unit."""
        plain = not self.nested and not self.around
        return self.permutation is not None and plain and all(space.group.is_factor for space in self.inner)


def blocks(spaces: Sequence[Space], blueprint: Blueprint) -> list[Block]:
    """Split the chosen spaces into blocks, in their blueprint's order.

    A space goes into the block of the innermost chosen permutation that indexes it, where one closed form covers both:
    if it is continuous, unless something that is not chosen lies between them, and a space of permutations unless it is
    coupled with something else there. Of permutations that are coupled with each other (channels inside of a
    convolution's groups, layer after layer), one block holds those that parameters tell apart which run through none of
    the others; the others follow, group by group.
    """
    permuted = [s for s in spaces if isinstance(s.group, Permutation)]
    inner: dict[str, list[Space]] = {s.name: [] for s in permuted}
    free: list[Space] = []
    for space in spaces:
        if space.name not in inner:
            owner = next((outer for outer in reversed(space.index) if outer in inner), None)
            (free if owner is None else inner[owner]).append(space)
    coupled = _coupled(blueprint, {space.name for space in spaces})
    made: dict[str, Block] = {}
    within: set[str] = set()
    for space in sorted(permuted, key=lambda s: len(s.index), reverse=True):
        children = [made[s.name] for s in permuted if s.index == (*space.index, space.name)]
        children.sort(key=lambda child: -_said_alone(child, blueprint))
        parts, nested = [frozenset([s.name]) for s in inner[space.name]], list[Block]()
        for child in children:
            is_plain = all(s.group.is_factor and not further_index(child, s) for s in child.inner) and not child.around
            if is_plain and not any((a, b) in coupled for a in child.names for part in parts for b in part):
                parts.append(child.names)
                nested.append(child)
        within.update(child.spaces[0].name for child in nested)
        every = inner[space.name]
        if nested or not all(s.group.is_factor for s in every):
            # What lies in copies inside, which keep their order, is solved alone; factors of plain units are not.
            free += [s for s in every if s.index[-1] != space.name]
            every = [s for s in every if s.index[-1] == space.name]
        is_more = bool(nested) or not all(s.group.is_factor for s in every)
        around = [s for s in every if is_more and s.group.is_factor and _shares(s, every, blueprint)]
        inside = tuple(s for s in every if s not in around)
        made[space.name] = Block(space, inside, tuple(nested), tuple(around))
    order = {space.name: position for position, space in enumerate(spaces)}
    found = [block for name, block in made.items() if name not in within] + [Block(None, (s,)) for s in free]
    return sorted(found, key=lambda block: order[block.spaces[0].name])


def _shares(factor: Space, every: Sequence[Space], blueprint: Blueprint) -> bool:
    """True if a factor multiplies a stretch that some other of these spaces acts on."""
    names = {space.name for space in every} - {factor.name}
    acting = (chain for axes in blueprint.touching([factor.name]).values() for axis in axes for chain in chains(axis))
    return any(factor.name in chain and not names.isdisjoint(chain) for chain in acting)


def _said_alone(block: Block, blueprint: Blueprint) -> int:
    """The number of entries of parameters that run through the block and, its indices apart, through no other space."""
    own = block.names | {outer for space in block.spaces for outer in space.index}
    touched = blueprint.touching(block.names).values()
    alone = (axes for axes in touched if own.issuperset(s for axis in axes for s in spaces_of(axis)))
    return sum(math.prod(axis.size or 1 for axis in axes) for axes in alone)


def _coupled(blueprint: Blueprint, names: Collection[str]) -> set[tuple[str, str]]:
    """Pairs of spaces, both ways, that act on different dimensions of one parameter or inside each other on one."""
    pairs: set[tuple[str, str]] = set()
    for axes in blueprint.touching(names).values():
        by_dim = [{space for space in spaces_of(axis) if space in names} for axis in axes]
        together = [(here, elsewhere) for dim, here in enumerate(by_dim) for elsewhere in by_dim[:dim]]
        inside = ({space for space in chain if space in names} for axis in axes for chain in chains(axis))
        for here, elsewhere in [*together, *((chain, chain) for chain in inside)]:
            pairs.update(pair for a in here for b in elsewhere for pair in ((a, b), (b, a)))
    return pairs


def waves(found: Sequence[Block], blueprint: Blueprint) -> list[list[Block]]:
    """Group blocks so that none in a group is coupled with another; one group where nothing is coupled at all.

    Two blocks are coupled if they act on different dimensions of one parameter, or inside each other on the same.
    A block comes after all coupled ones that the blueprint declares before it, so that what is known spreads along
    the model (from token embeddings over the stream to the heads).
    """
    owner = {name: position for position, block in enumerate(found) for name in block.names}
    coupled: list[set[int]] = [set() for _ in found]
    for a, b in _coupled(blueprint, owner):
        if owner[a] != owner[b]:
            coupled[owner[a]].add(owner[b])
    colours: dict[int, int] = {}
    for position in range(len(found)):
        colours[position] = 1 + max((colours[other] for other in coupled[position] if other in colours), default=-1)
    return [[found[p] for p in colours if colours[p] == colour] for colour in sorted(set(colours.values()))]


def further_index(block: Block, space: Space) -> tuple[str, ...]:
    """Indices of the copies of a factor inside of a block's units beside the units and what indexes these."""
    return tuple(outer for outer in space.index if outer not in _index(block))


def _index(block: Block) -> tuple[str, ...]:
    """The spaces that index a block's permutations, and these themselves."""
    assert block.permutation is not None
    return (*block.permutation.index, block.permutation.name)
