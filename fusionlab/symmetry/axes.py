"""Axes: one dimension of one parameter, labelled with the spaces it runs through.

Four kinds are enough for the projections that transformers have. With `heads` a space of permutations, ``qk`` and
``vo`` spaces with one element for each head and ``residual`` a space of its own:

- ``Fixed(10)``: class labels, pixels, positions. Nothing acts on it.
- ``Along("residual", 768)``: the axis is the space.
- ``Per("heads", 12, Along("qk", 64))``: 12 blocks of 64; the blocks are permuted, each is a vector of its own copy.
- ``Concat(Per(...), Per(...), ...)``: segments, as in a fused query-key-value projection.

An axis is primal (``h -> G h``, a writer's output) or dual (``G^-T``, a reader's input); `dual` turns one into the
other. This file only describes; it knows neither groups nor parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Fixed:
    """An axis that no space touches; ``size`` None admits every length."""

    size: int | None = None

    def dual(self) -> Fixed:
        return self


@dataclass(frozen=True)
class Along:
    """An axis that runs along a space of dimension ``size``."""

    space: str
    size: int
    is_dual: bool = False

    def dual(self) -> Along:
        return Along(self.space, self.size, not self.is_dual)


@dataclass(frozen=True)
class Per:
    """``count`` blocks laid one after the other, permuted by ``space``; ``inner`` is the axis inside a block."""

    space: str
    count: int
    inner: Axis

    @property
    def size(self) -> int | None:
        return None if self.inner.size is None else self.count * self.inner.size

    def dual(self) -> Per:
        return Per(self.space, self.count, self.inner.dual())


@dataclass(frozen=True)
class Concat:
    """Segments laid one after the other."""

    parts: tuple[Axis, ...]

    def __init__(self, *parts: Axis) -> None:
        object.__setattr__(self, "parts", parts)

    @property
    def size(self) -> int | None:
        sizes = [part.size for part in self.parts]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def dual(self) -> Concat:
        return Concat(*(part.dual() for part in self.parts))

    def sizes(self, whole: int) -> list[int]:
        """The length of every part of an axis of length `whole`; only the last part may leave its own open."""
        sizes = [part.size for part in self.parts if part.size is not None]
        return sizes if len(sizes) == len(self.parts) else [*sizes, whole - sum(sizes)]


Axis = Fixed | Along | Per | Concat


@dataclass(frozen=True)
class Leaf:
    """One innermost stretch of an axis, cut out of a tensor.

    Attributes:
        space: the space it runs along, or None where it is fixed.
        is_dual: whether that space acts by its dual there.
        path: the spaces of the blocks around it, outermost first.
        view: the tensor's part, of shape ``(*counts of path, size, features)``; ``features`` runs over all the
            tensor's other dimensions.
    """

    space: str | None
    is_dual: bool
    path: tuple[str, ...]
    view: Tensor

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


def spaces_of(axis: Axis) -> Iterator[str]:
    """Every space that acts somewhere on `axis`, outermost first, with repetition."""
    match axis:
        case Along():
            yield axis.space
        case Per():
            yield axis.space
            yield from spaces_of(axis.inner)
        case Concat():
            for part in axis.parts:
                yield from spaces_of(part)


def sides_of(axis: Axis) -> Iterator[tuple[str, bool]]:
    """Every space that runs along some stretch of `axis`, and whether it acts by its dual there."""
    match axis:
        case Along():
            yield axis.space, axis.is_dual
        case Per():
            yield from sides_of(axis.inner)
        case Concat():
            for part in axis.parts:
                yield from sides_of(part)


def chains(axis: Axis) -> Iterator[tuple[str, ...]]:
    """The spaces that act inside each other on `axis`, outermost first, once for each innermost stretch."""
    match axis:
        case Fixed():
            yield ()
        case Along():
            yield (axis.space,)
        case Per():
            for inner in chains(axis.inner):
                yield (axis.space, *inner)
        case Concat():
            for part in axis.parts:
                yield from chains(part)


def leaves(axis: Axis, tensor: Tensor, dim: int) -> Iterator[Leaf]:
    """Cut dimension `dim` of `tensor` into the innermost stretches of `axis`, as views where strides allow."""
    rows = tensor.movedim(dim, 0)
    yield from _leaves(axis, rows.reshape(rows.shape[0], -1), ())


def _leaves(axis: Axis, view: Tensor, path: tuple[str, ...]) -> Iterator[Leaf]:
    match axis:
        case Fixed():
            yield Leaf(None, False, path, view)
        case Along():
            yield Leaf(axis.space, axis.is_dual, path, view)
        case Per():
            yield from _leaves(axis.inner, view.unflatten(-2, (axis.count, -1)), (*path, axis.space))
        case Concat():
            pieces = view.split(axis.sizes(view.shape[-2]), dim=-2)
            for part, piece in zip(axis.parts, pieces, strict=True):
                yield from _leaves(part, piece, path)
