"""The innermost stretches of an axis, cut out of a tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from fusionlab.symmetry.axes import Along, Axis, Concat, Fixed, Per, Scaled, unfolded, within


@dataclass(frozen=True)
class Leaf:
    """One innermost stretch of an axis, cut out of a tensor.

    Attributes:
        space: the space it runs along, or None where it is fixed.
        power: the power by which that space acts there: 1, -1 by its dual, another only of a factor.
        path: the spaces of the blocks around it, outermost first.
        view: the tensor's part, of shape ``(*counts of path, size, features)``; ``features`` runs over all the
            tensor's other dimensions.
        factors: the factors that multiply all of it, beside the space, and their powers.
    """

    space: str | None
    power: int
    path: tuple[str, ...]
    view: Tensor
    factors: tuple[tuple[str, int], ...] = ()

    @property
    def is_dual(self) -> bool:
        """The space acts by its dual there."""
        return self.power < 0

    @property
    def spaces(self) -> tuple[str, ...]:
        """All spaces that act on it, outermost first."""
        return (*self.path, *(factor for factor, _ in self.factors), *(() if self.space is None else (self.space,)))

    def along(self, space: str) -> Leaf | None:
        """The stretch as one of the spaces that run along it sees it; None where that space does not act.

        A factor sees one coordinate, and all that it multiplies as features.
        """
        if space == self.space:
            return self
        power = dict(self.factors).get(space)
        return None if power is None else Leaf(space, power, self.path, self.view.flatten(-2).unsqueeze(-2))

    def by_copies(self, index: Sequence[str]) -> Tensor:
        """The part by the blocks that index copies of a space, a view.

        Args:
            index: spaces among those of `path`, in any order.

        Returns:
            Shape ``(*copies, size, *counts of all other blocks, features)``: what does not index the space is a further
            feature of it.
        """
        kept = [self.path.index(outer) for outer in index]
        depth = len(self.path)
        others = [position for position in range(depth) if position not in kept]
        return self.view.permute(*kept, depth, *others, depth + 1)


def leaves(axis: Axis, tensor: Tensor, dim: int) -> Iterator[Leaf]:
    """Cut dimension `dim` of `tensor` into the innermost stretches of `axis`, as views where strides allow.

    Every entry is in one of them, however many factors are around it (`Leaf.factors`). Where a factor is around nothing
    but a fixed stretch, it is what the stretch runs along.
    """
    yield from _leaves(within(axis), *unfolded(axis, tensor, dim), ())


def _leaves(axis: Axis, view: Tensor, path: tuple[str, ...], factors: tuple[tuple[str, int], ...]) -> Iterator[Leaf]:
    match axis:
        case Fixed() if factors:
            yield Leaf(*factors[-1], path, view.flatten(-2).unsqueeze(-2), factors[:-1])
        case Fixed():
            yield Leaf(None, 1, path, view)
        case Along():
            yield Leaf(axis.space, -1 if axis.is_dual else 1, path, view, factors)
        case Per():
            yield from _leaves(axis.inner, view.unflatten(-2, (axis.count, -1)), (*path, axis.space), factors)
        case Concat():
            pieces = view.split(axis.sizes(view.shape[-2]), dim=-2)
            for part, piece in zip(axis.parts, pieces, strict=True):
                yield from _leaves(part, piece, path, factors)
        case Scaled():
            yield from _leaves(axis.inner, view, path, (*factors, (axis.space, axis.power)))
