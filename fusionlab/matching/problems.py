"""From two models and a blueprint to small problems: which spaces are solved together, and their correlations.

A *block* is what one closed form solves: a continuous space with its copies, a space of permutations, or a space of
permutations together with the continuous spaces that it indexes (attention heads, with a rotation inside each).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fusionlab.matching.solvers import Correlation
from fusionlab.symmetry.axes import Leaf, leaves, spaces_of
from fusionlab.symmetry.blueprint import Blueprint, Space
from fusionlab.symmetry.groups import Permutation

State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Block:
    """Spaces that are solved together.

    Attributes:
        permutation: the space of permutations, or None.
        inner: the continuous spaces; indexed by `permutation` if there is one.
    """

    permutation: Space | None
    inner: tuple[Space, ...] = ()

    @property
    def spaces(self) -> tuple[Space, ...]:
        return self.inner if self.permutation is None else (self.permutation, *self.inner)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(space.name for space in self.spaces)


def blocks(spaces: Sequence[Space]) -> list[Block]:
    """Split the chosen spaces into blocks, in their blueprint's order."""
    inner: dict[str, list[Space]] = {s.name: [] for s in spaces if isinstance(s.group, Permutation)}
    free: list[Space] = []
    for space in spaces:
        if not isinstance(space.group, Permutation):
            owner = next((outer for outer in reversed(space.index) if outer in inner), None)
            (free if owner is None else inner[owner]).append(space)
    order = {space.name: position for position, space in enumerate(spaces)}
    found = [Block(s, tuple(inner[s.name])) for s in spaces if s.name in inner] + [Block(None, (s,)) for s in free]
    return sorted(found, key=lambda block: order[block.spaces[0].name])


def waves(found: Sequence[Block], blueprint: Blueprint) -> list[list[Block]]:
    """Group blocks so that none in a group is coupled with another; one group where nothing is coupled at all.

    Two blocks are coupled if they act on different dimensions of one parameter, or inside each other on the same.
    """
    owner = {name: position for position, block in enumerate(found) for name in block.names}
    coupled: list[set[int]] = [set() for _ in found]
    for axes in blueprint.touching(owner).values():
        by_dim = [{owner[s] for s in spaces_of(axis) if s in owner} for axis in axes]
        for dim, here in enumerate(by_dim):
            for elsewhere in by_dim[:dim]:
                for a in here:
                    for b in elsewhere - {a}:
                        coupled[a].add(b)
                        coupled[b].add(a)
    for space in (space for block in found for space in block.spaces):
        for outer in space.index:
            if outer in owner and owner[outer] != owner[space.name]:
                coupled[owner[outer]].add(owner[space.name])
                coupled[owner[space.name]].add(owner[outer])
    colours: dict[int, int] = {}
    for position in range(len(found)):
        taken = {colours[other] for other in coupled[position] if other in colours}
        colours[position] = next(colour for colour in range(len(found)) if colour not in taken)
    return [[found[p] for p in colours if colours[p] == colour] for colour in sorted(set(colours.values()))]


def paired_leaves(
    blueprint: Blueprint, source: State, anchor: State, spaces: Iterable[str]
) -> Iterator[tuple[Leaf, Leaf]]:
    """Every stretch of parameters that the named spaces act on, in the source and in the anchor."""
    chosen = set(spaces)
    for name, axes in blueprint.touching(chosen).items():
        for dim, axis in enumerate(axes):
            if chosen.isdisjoint(spaces_of(axis)):
                continue
            for a, b in zip(leaves(axis, source[name], dim), leaves(axis, anchor[name], dim), strict=True):
                if a.space in chosen or not chosen.isdisjoint(a.path):
                    yield a, b


def correlate_permutation(
    block: Block, blueprint: Blueprint, source: State, anchor: State, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """Correlation of the permuted units over all that moves with them and has no basis of its own.

    Args:
        block: one with a permutation.
        dtype: compute the products in this type, the parameters' own if None.

    Returns:
        C = B A^T, shape ``(n, n)``: anchor unit by source unit; and the bound ``|a| |b|`` on a row's entries, shape
        ``(n,)``, that its rounding errors are relative to.
    """
    space = block.permutation
    assert space is not None
    inner = {s.name for s in block.inner}
    sides: tuple[list[Tensor], list[Tensor]] = ([], [])
    for pair in paired_leaves(blueprint, source, anchor, [space.name]):
        if pair[0].space not in inner:
            for side, leaf in zip(sides, pair, strict=True):
                keep = () if leaf.space == space.name else (space.name,)
                side.append(_rows(leaf, keep).flatten(1))
    if not sides[0]:
        some = next(iter(source.values()))
        return some.new_zeros(space.group.size, space.group.size), some.new_zeros(space.group.size)
    a_norm, b_norm = (sum(rows.square().sum(-1) for rows in side) for side in sides)
    assert isinstance(a_norm, Tensor)
    assert isinstance(b_norm, Tensor)
    if dtype is None:
        correlation = sides[1][0] @ sides[0][0].mT
        for b, a in zip(sides[1][1:], sides[0][1:], strict=True):
            correlation.addmm_(b, a.mT)
    else:
        # One product with the stretches side by side: its result is rounded once, not once for each stretch.
        a, b = (torch.cat([rows.to(dtype) for rows in side], -1) for side in sides)
        correlation = b @ a.mT
    return correlation, b_norm.sqrt() * a_norm.max().sqrt()


def correlate_inner(block: Block, space: Space, blueprint: Blueprint, source: State, anchor: State) -> Correlation:
    """Correlations of one continuous space of a block.

    Returns:
        For a block without a permutation, one for each copy of the space, shapes ``(*copies, d, d)``; with one, for
        every pair of an anchor's copy and a source's copy, shapes ``(n, n, d, d)``.
    """
    products: dict[bool, Tensor | float] = {False: 0.0, True: 0.0}
    norms: dict[bool, Tensor | float] = {False: 0.0, True: 0.0}
    for a, b in paired_leaves(blueprint, source, anchor, [space.name]):
        rows_a, rows_b = _rows(a, space.index), _rows(b, space.index)
        if block.permutation is None:
            product = rows_b @ rows_a.mT
            norm = rows_a.double().square().sum((-2, -1))
        else:
            count, size = rows_a.shape[-3:-1]
            product = (rows_b.flatten(-3, -2) @ rows_a.flatten(-3, -2).mT).unflatten(-1, (count, size))
            product = product.unflatten(-3, (count, size)).movedim(-3, -2)
            norm = rows_a.double().square().sum((-2, -1)).expand(count, count)
        products[a.is_dual] = products[a.is_dual] + product.double()
        norms[a.is_dual] = norms[a.is_dual] + norm
    return Correlation(*_alike(products[False], products[True]), *_alike(norms[False], norms[True]))


def _alike(first: Tensor | float, second: Tensor | float) -> tuple[Tensor, Tensor]:
    """Turn a sum that nothing was added to into zeros of the other's shape."""
    if not isinstance(first, Tensor):
        assert isinstance(second, Tensor)
        return torch.zeros_like(second), second
    return first, second if isinstance(second, Tensor) else torch.zeros_like(first)


def _rows(leaf: Leaf, keep: Sequence[str]) -> Tensor:
    """The leaf as ``(*keep, size, features)``: blocks that do not index the space count as more features."""
    kept = [leaf.path.index(name) for name in keep]
    depth = len(leaf.path)
    rest = [position for position in range(depth) if position not in kept]
    return leaf.view.permute(*kept, depth, *rest, depth + 1).flatten(len(kept) + 1)
