"""From two models and a blueprint to small problems: which spaces are solved together, and their correlations.

A *block* is what is solved together: a continuous space with its copies, a space of permutations, or a space of
permutations together with what it indexes (attention heads with a rotation inside each, experts with their units).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fusionlab.matching.solvers import Correlation
from fusionlab.symmetry.alignment import Alignment
from fusionlab.symmetry.axes import Across, Leaf, chains, leaves, spaces_of
from fusionlab.symmetry.blueprint import Blueprint, Space
from fusionlab.symmetry.groups import Permutation
from fusionlab.types import State


@dataclass(frozen=True)
class Block:
    """Spaces that are solved together.

    Attributes:
        permutation: the space of permutations, or None.
        inner: the continuous spaces; indexed by `permutation` if there is one.
        nested: blocks of permutations that `permutation` indexes, none of them coupled with another or with `inner`.
    """

    permutation: Space | None
    inner: tuple[Space, ...] = ()
    nested: tuple[Block, ...] = ()

    @property
    def spaces(self) -> tuple[Space, ...]:
        deeper = (space for block in self.nested for space in block.spaces)
        return (*(() if self.permutation is None else (self.permutation,)), *self.inner, *deeper)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(space.name for space in self.spaces)

    @property
    def is_units(self) -> bool:
        """True if this is a plain assignment: nothing inside, or at most a factor for each unit."""
        return self.permutation is not None and not self.nested and all(space.group.is_factor for space in self.inner)


def blocks(spaces: Sequence[Space], blueprint: Blueprint) -> list[Block]:
    """Split the chosen spaces into blocks, in their blueprint's order.

    A space goes into the block of the innermost permutation that indexes it, where one closed form covers both: always
    if it is a factor or the permutation has no index itself (pairs of copies are compared inside one permutation, not
    inside each of several); a space of permutations if it is coupled with nothing else there.
    """
    permuted = [s for s in spaces if isinstance(s.group, Permutation)]
    inner: dict[str, list[Space]] = {s.name: [] for s in permuted}
    indexed = {s.name for s in spaces if s.index}
    free: list[Space] = []
    for space in spaces:
        if space.name not in inner:
            owner = next((outer for outer in reversed(space.index) if outer in inner), None)
            if owner in indexed and not space.group.is_factor:
                owner = None
            (free if owner is None else inner[owner]).append(space)
    coupled = _coupled(blueprint, {space.name for space in spaces})
    made: dict[str, Block] = {}
    within: set[str] = set()
    for space in sorted(permuted, key=lambda s: len(s.index), reverse=True):
        children = [made[s.name] for s in permuted if s.index == (*space.index, space.name)]
        parts = [*(frozenset([s.name]) for s in inner[space.name]), *(child.names for child in children)]
        nested = [
            child
            for child in children
            if not any((a, b) in coupled for a in child.names for part in parts if part != child.names for b in part)
            and not any(further_index(child, one) for one in child.inner)
        ]
        within.update(child.spaces[0].name for child in nested)
        made[space.name] = Block(space, tuple(inner[space.name]), tuple(nested))
    order = {space.name: position for position, space in enumerate(spaces)}
    found = [block for name, block in made.items() if name not in within] + [Block(None, (s,)) for s in free]
    return sorted(found, key=lambda block: order[block.spaces[0].name])


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


@dataclass(frozen=True)
class Problem:
    """Two models as they stand, and what is not yet known of how their bases relate.

    Attributes:
        blueprint: of both.
        source: parameters by name.
        anchor: parameters by name.
        unknown: spaces that are still to be solved; a stretch of parameters that also runs through one of them says
            nothing yet and is left out, unless there is no other.
    """

    blueprint: Blueprint
    source: State
    anchor: State
    unknown: frozenset[str] = frozenset()

    def stretches(self, spaces: Iterable[str], own: frozenset[str]) -> list[tuple[Leaf, Leaf]]:
        """Every stretch of parameters that some spaces act on, in the source and in the anchor.

        Args:
            spaces: the spaces to look for.
            own: spaces that are solved together with them and so are not in the way, unless a parameter runs through
                them twice.
        """
        chosen = set(spaces)
        known, every = [], []
        for name, axes in self.blueprint.touching(chosen).items():
            # Where what lies inside blocks of another dimension is solved with them, their axes are cut as one.
            whole = {a.dim: a.spaces for a in axes if isinstance(a, Across) and not own.isdisjoint(spaces_of(a))}
            for dim, axis in enumerate(axes):
                outer = frozenset(axis.spaces if isinstance(axis, Across) else ())
                through = {*spaces_of(axis), *(outer if not own.isdisjoint(spaces_of(axis)) else ())}
                if chosen.isdisjoint(through.difference(whole.get(dim, ()))):
                    continue
                others = {s for d, other in enumerate(axes) if d != dim for s in spaces_of(other)} - outer
                pairs = zip(leaves(axis, self.source[name], dim), leaves(axis, self.anchor[name], dim), strict=True)
                for a, b in pairs:
                    if a.space in chosen or not chosen.isdisjoint(a.path):
                        every.append((a, b))
                        if self.unknown.isdisjoint(others | ({*a.path, a.space} - own)):
                            known.append((a, b))
        return known or every

    def moved(self, step: Alignment) -> Problem:
        """The same problem with its source moved."""
        touched = self.blueprint.touching(step.elements)
        return replace(
            self, source={**self.source, **{name: step.apply_to(name, self.source[name]) for name in touched}}
        )


def unit_rows(
    problem: Problem, block: Block, own: frozenset[str], only: str | None = None
) -> tuple[list[Tensor], list[Tensor]]:
    """The permuted units of the source and of the anchor, as rows over all that moves with them and has no basis.

    Args:
        block: one with a permutation.
        own: spaces that are solved together with it, itself among them.
        only: the one space to take, in place of all that is not inside the block.

    Returns:
        For each of the two, one tensor for every stretch of parameters, shape ``(*copies, n, features)``.
    """
    space = block.permutation
    assert space is not None
    deeper = block.names - {space.name}
    sides: tuple[list[Tensor], list[Tensor]] = ([], [])
    for pair in problem.stretches([space.name], own):
        first = pair[0]
        if first.space == only if only is not None else deeper.isdisjoint((*first.path, first.space)):
            for side, leaf in zip(sides, pair, strict=True):
                moved = () if leaf.space == space.name else (space.name,)
                side.append(_rows(leaf, (*space.index, *moved)).flatten(len(space.index) + 1))
    return sides


def correlate_permutation(problem: Problem, block: Block, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    """Correlation of the permuted units over all that moves with them and has no basis of its own.

    Args:
        block: one with a permutation.
        dtype: compute the products in this type, the parameters' own if None.

    Returns:
        C = B A^T, shape ``(*copies, n, n)``: anchor unit by source unit; and the bound ``|a| |b|`` on a row's entries,
        shape ``(*copies, n)``, that its rounding errors are relative to.
    """
    space = block.permutation
    assert space is not None
    sides = unit_rows(problem, block, block.names)
    if not sides[0]:
        some = next(iter(problem.source.values()))
        shape = (*space.copies, space.group.size)
        return some.new_zeros(*shape, space.group.size), some.new_zeros(shape)
    a_norm, b_norm = (torch.stack([rows.square().sum(-1) for rows in side]).sum(0) for side in sides)
    if dtype is None:
        correlation = sides[1][0] @ sides[0][0].mT
        for b, a in zip(sides[1][1:], sides[0][1:], strict=True):
            correlation = correlation + b @ a.mT if correlation.ndim > 2 else correlation.addmm_(b, a.mT)
    else:
        # One product with the stretches side by side: its result is rounded once, not once for each stretch.
        a, b = (torch.cat([rows.to(dtype) for rows in side], -1) for side in sides)
        correlation = b @ a.mT
    return correlation, b_norm.sqrt() * a_norm.amax(-1, keepdim=True).sqrt()


def correlate_unit_factors(problem: Problem, block: Block, space: Space) -> Tensor:
    """Correlation of the permuted units over what one factor for each of them moves.

    Returns:
        Shape ``(*others, *copies, n, n)``: `others` blocks have a factor each for a unit that they share the order of,
        as every head has signs of its own for coordinates that one norm's gains hold in one order.
    """
    permutation = block.permutation
    assert permutation is not None
    kept = (*further_index(block, space), *permutation.index, permutation.name)
    counts = [problem.blueprint.spaces[outer].group.size for outer in kept]
    correlation = next(iter(problem.source.values())).new_zeros(*counts, counts[-1])
    for pair in problem.stretches([permutation.name], block.names):
        if pair[0].space == space.name:
            a, b = (_rows(leaf, kept).flatten(len(kept)) for leaf in pair)
            correlation = correlation + b @ a.mT
    return correlation


def further_index(block: Block, space: Space) -> tuple[str, ...]:
    """Indices of the copies of a factor inside of a block's units beside the units and what indexes these."""
    return tuple(outer for outer in space.index if outer not in _index(block))


def correlate_inner(problem: Problem, block: Block, space: Space, moved: bool = False) -> Correlation:
    """Correlations of one continuous space of a block.

    Args:
        moved: whether the source has been moved by the block's permutations already.

    Returns:
        For a block without a permutation, or where it has moved, one for each copy of the space, shapes
        ``(*copies, d, d)``; else for every pair of an anchor's copy and a source's copy, shapes ``(n, n, d, d)``.
    """
    products: dict[bool, Tensor | float] = {False: 0.0, True: 0.0}
    norms: dict[bool, Tensor | float] = {False: 0.0, True: 0.0}
    for a, b in problem.stretches([space.name], block.names):
        rows_a, rows_b = _rows(a, space.index), _rows(b, space.index)
        norm = rows_a.double().square().sum(-1)
        if block.permutation is None or moved:
            product = rows_b @ rows_a.mT
        else:
            count, size = rows_a.shape[-3:-1]
            product = (rows_b.flatten(-3, -2) @ rows_a.flatten(-3, -2).mT).unflatten(-1, (count, size))
            product = product.unflatten(-3, (count, size)).movedim(-3, -2)
            norm = norm.expand(count, count, size)
        products[a.is_dual] = products[a.is_dual] + product.double()
        norms[a.is_dual] = norms[a.is_dual] + norm
    return Correlation(*_alike(products[False], products[True]), *_alike(norms[False], norms[True]))


def _index(block: Block) -> tuple[str, ...]:
    """The spaces that index a block's permutations, and these themselves."""
    assert block.permutation is not None
    return (*block.permutation.index, block.permutation.name)


def _alike(first: Tensor | float, second: Tensor | float) -> tuple[Tensor, Tensor]:
    """Turn a sum that nothing was added to into zeros of the other's shape."""
    if not isinstance(first, Tensor):
        assert isinstance(second, Tensor)
        return torch.zeros_like(second), second
    return first, second if isinstance(second, Tensor) else torch.zeros_like(first)


def _rows(leaf: Leaf, keep: Sequence[str]) -> Tensor:
    """The leaf as ``(*keep, size, features)``: blocks that do not index the space count as more features."""
    return leaf.by_copies(keep).flatten(len(keep) + 1)
