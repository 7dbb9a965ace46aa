"""From two models and a blueprint to small problems: the correlations of spaces that are solved together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from fusionlab.matching.blocks import Block
from fusionlab.matching.keeping import IN_MEMORY, Keeper
from fusionlab.matching.sharing import Share
from fusionlab.matching.solvers import Correlation
from fusionlab.symmetry.alignment import Alignment
from fusionlab.symmetry.axes import Across, chains, spaces_of
from fusionlab.symmetry.blueprint import Blueprint, Space
from fusionlab.symmetry.leaves import Leaf, leaves
from fusionlab.types import State

Result = TypeVar("Result")
# By parameter and dimension, the spaces that act inside each other on stretches, by their number among the dimension's.
Places = dict[tuple[str, int], dict[int, tuple[str, ...]]]


@dataclass(frozen=True)
class Problem:
    """Two models as they stand, and what is not yet known of how their bases relate.

    Attributes:
        blueprint: of both.
        source: parameters by name; of models that several processes share, those that lie here.
        anchor: the same of the other model.
        unknown: spaces that are still to be solved; a stretch of parameters that also runs through one of them says
            nothing yet and is left out, unless there is no other.
        keeper: of the source as it moves.
        share: what of the models lies here, and what runs through parameters of several processes; None for all.
    """

    blueprint: Blueprint
    source: State
    anchor: State
    unknown: frozenset[str] = frozenset()
    keeper: Keeper = IN_MEMORY
    share: Share | None = None

    def is_shared(self, block: Block) -> bool:
        """True if a block's parameters lie in several processes."""
        return self.share is not None and block.spaces[0].name in self.share.streams

    def is_elsewhere(self, block: Block) -> bool:
        """True if all of a block's parameters lie in another process."""
        if self.share is None or self.share.team.size == 1 or self.is_shared(block):
            return False
        return self.share.names.isdisjoint(self.blueprint.touching(block.names))

    def total(self, block: Block, *parts: Tensor) -> tuple[Tensor, ...]:
        """The sums over all parameters that a block acts on, from the sums over those that lie here."""
        return self.share.team.total(*parts) if self.share is not None and self.is_shared(block) else parts

    def agreed(self, block: Block, make: Callable[[], Result]) -> Result:
        """The result of solving a block, by one process where its parameters lie in several."""
        return self.share.team.agreed(make) if self.share is not None and self.is_shared(block) else make()

    def sum_of(self, part: float) -> float:
        """The sum over all processes that share the models."""
        if self.share is None or self.share.team.size == 1:
            return part
        return float(self.share.team.total(torch.tensor(part, dtype=torch.float64))[0])

    def stretches(self, spaces: Iterable[str], own: frozenset[str]) -> Iterator[tuple[Leaf, Leaf]]:
        """Every stretch of parameters that some spaces act on, in the source and in the anchor.

        Args:
            spaces: the spaces to look for.
            own: spaces that are solved together with them and so are not in the way, unless a parameter runs through
                them twice.
        """
        for at, places in self.places(spaces, own).items():
            yield from self.cut(at, places)

    def places(self, spaces: Iterable[str], own: frozenset[str]) -> Places:
        """The places of the stretches that `stretches` yields, in all parameters of the blueprint."""
        known, every = self._places(set(spaces), own)
        return known or every

    def cut(self, at: tuple[str, int], places: Collection[int]) -> Iterator[tuple[Leaf, Leaf]]:
        """Some stretches of a parameter's dimension by their numbers, of both models; none where it lies elsewhere."""
        name, dim = at
        if name in self.source:
            axis = self.blueprint.parameters[name][dim]
            pairs = zip(leaves(axis, self.source[name], dim), leaves(axis, self.anchor[name], dim), strict=True)
            yield from (pair for place, pair in enumerate(pairs) if place in places)

    def is_seen_whole(self, space: str, own: frozenset[str]) -> bool:
        """True if no stretch that a space acts on is left out, because it also runs through what is still unknown."""
        known, every = self._places({space}, own)
        return known == every

    def _places(self, chosen: set[str], own: frozenset[str]) -> tuple[Places, Places]:
        """The stretches that some spaces act on, those of them first that say something; see `stretches`."""
        known: Places = {}
        every: Places = {}
        for name, axes in self.blueprint.touching(chosen).items():
            # Where what lies inside blocks of another dimension is solved with them, their axes are cut as one.
            whole = {a.dim: a.spaces for a in axes if isinstance(a, Across) and not own.isdisjoint(spaces_of(a))}
            for dim, axis in enumerate(axes):
                outer = frozenset(axis.spaces if isinstance(axis, Across) else ())
                through = {*spaces_of(axis), *(outer if not own.isdisjoint(spaces_of(axis)) else ())}
                if chosen.isdisjoint(through.difference(whole.get(dim, ()))):
                    continue
                others = {s for d, other in enumerate(axes) if d != dim for s in spaces_of(other)} - outer
                for place, chain in enumerate(chains(axis)):
                    if not chosen.isdisjoint(chain):
                        every.setdefault((name, dim), {})[place] = chain
                        if self.unknown.isdisjoint(others | (set(chain) - own)):
                            known.setdefault((name, dim), {})[place] = chain
        return known, every

    def moved(self, step: Alignment) -> Problem:
        """The same problem with its source moved."""
        return self.changed(self.touched(step.elements), lambda name: step.apply_to(name, self.source[name]))

    def touched(self, spaces: Iterable[str]) -> list[str]:
        """The parameters that some spaces act on and that lie here."""
        return [name for name in self.blueprint.touching(spaces) if name in self.source]

    def changed(self, names: Collection[str], make: Callable[[str], Tensor]) -> Problem:
        """The same problem with some of the source's parameters changed; see `Keeper.changed`."""
        return replace(self, source=self.keeper.changed(self.source, names, make))

    def settled(self) -> Problem:
        """The same problem, of which earlier ones are not looked at again."""
        return replace(self, source=self.keeper.settled(self.source))


def unit_rows(problem: Problem, block: Block, own: frozenset[str]) -> Iterator[tuple[Tensor, Tensor]]:
    """The permuted units of the source and of the anchor, as rows over all that moves with them and has no basis.

    Args:
        block: one with a permutation.
        own: spaces that are solved together with it, itself among them.

    Yields:
        For every stretch of parameters one tensor of each, shape ``(*copies, n, features)``.
    """
    space = block.permutation
    assert space is not None
    deeper = block.names - {space.name}
    for first, second in problem.stretches([space.name], own):
        if deeper.isdisjoint(first.spaces):
            kept = (*space.index, *(() if first.space == space.name else (space.name,)))
            rows = [_rows(leaf, kept).flatten(len(space.index) + 1) for leaf in (first, second)]
            yield rows[0], rows[1]


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
    some = next(iter(problem.anchor.values()))
    shape = (*space.copies, space.group.size)
    correlation: Tensor | None = None
    norms = [some.new_zeros(shape), some.new_zeros(shape)]
    typed: list[tuple[Tensor, ...]] = []
    for rows in unit_rows(problem, block, block.names):
        norms = [norm + side.square().sum(-1) for norm, side in zip(norms, rows, strict=True)]
        a, b = rows
        if dtype is not None:
            typed.append((a.to(dtype), b.to(dtype)))
        elif correlation is None:
            correlation = b @ a.mT
        else:
            correlation = correlation + b @ a.mT if correlation.ndim > 2 else correlation.addmm_(b, a.mT)
    if typed:
        # One product with the stretches side by side: its result is rounded once, not once for each stretch.
        a, b = (torch.cat(side, -1) for side in zip(*typed, strict=True))
        correlation = b @ a.mT
    if correlation is None:
        correlation = some.new_zeros(*shape, space.group.size)
    correlation, source, anchor = problem.total(block, correlation, *norms)
    return correlation, anchor.sqrt() * source.amax(-1, keepdim=True).sqrt()


def correlate_inner(problem: Problem, block: Block, space: Space, moved: bool = False) -> Correlation:
    """Correlations of one continuous space of a block.

    Args:
        moved: whether the source has been moved by the block's permutations already.

    Returns:
        For a block without a permutation, or where it has moved, one for each copy of the space, shapes
        ``(*copies, d, d)``; else for every pair of an anchor's copy and a source's copy, shapes
        ``(*copies of the permutation, n, n, d, d)``.
    """
    products: dict[bool, Tensor | float] = {False: 0.0, True: 0.0}
    norms: dict[bool, Tensor | float] = {False: 0.0, True: 0.0}
    for pair in problem.stretches([space.name], block.names):
        a, b = (leaf for leaf in (side.along(space.name) for side in pair) if leaf is not None)
        rows_a, rows_b = _rows(a, space.index), _rows(b, space.index)
        norm = rows_a.double().square().sum(-1)
        if block.permutation is None or moved:
            product = rows_b @ rows_a.mT
        else:
            count, size = rows_a.shape[-3:-1]
            product = (rows_b.flatten(-3, -2) @ rows_a.flatten(-3, -2).mT).unflatten(-1, (count, size))
            product = product.unflatten(-3, (count, size)).movedim(-3, -2)
            norm = norm.unsqueeze(-3).expand(*norm.shape[:-2], count, count, size)
        products[a.is_dual] = products[a.is_dual] + product.double()
        norms[a.is_dual] = norms[a.is_dual] + norm
    if problem.is_shared(block):
        empty = next(iter(problem.anchor.values())).new_zeros(*space.copies, space.group.size, dtype=torch.float64)
        sums = [products[dual] + torch.diag_embed(empty) for dual in (False, True)]
        sums += [norms[dual] + empty for dual in (False, True)]
        return Correlation(*problem.total(block, *sums))
    return Correlation(*_alike(products[False], products[True]), *_alike(norms[False], norms[True]))


def _alike(first: Tensor | float, second: Tensor | float) -> tuple[Tensor, Tensor]:
    """Turn a sum that nothing was added to into zeros of the other's shape."""
    if not isinstance(first, Tensor):
        assert isinstance(second, Tensor)
        return torch.zeros_like(second), second
    return first, second if isinstance(second, Tensor) else torch.zeros_like(first)


def _rows(leaf: Leaf, keep: Sequence[str]) -> Tensor:
    """The leaf as ``(*keep, size, features)``: blocks that do not index the space count as more features."""
    return leaf.by_copies(keep).flatten(len(keep) + 1)
