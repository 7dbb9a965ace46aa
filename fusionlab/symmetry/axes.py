"""Axes: one dimension of one parameter, labelled with the spaces it runs through.

Five kinds are enough for the projections that transformers have. With `heads` a space of permutations, ``qk`` and
``vo`` spaces with one element for each head and ``residual`` a space of its own:

- ``Fixed(10)``: class labels, pixels, positions. Nothing acts on it.
- ``Along("residual", 768)``: the axis is the space.
- ``Per("heads", 12, Along("qk", 64))``: 12 blocks of 64; the blocks are permuted, each is a vector of its own copy.
- ``Concat(Per(...), Per(...), ...)``: segments, as in a fused query-key-value projection.
- ``Across((("experts", 8),), 0, Along("ffn", 56))``: as a block of ``Per`` has its own copy, but the blocks lie along
  another dimension (0) of the same parameter, whose own axis permutes them: the weights of all experts in one tensor.

An axis is primal (``h -> G h``, a writer's output) or dual (``G^-T``, a reader's input); `dual` turns one into the
other. This file only describes; it knows neither groups nor parameters.
"""

from __future__ import annotations

import math
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


@dataclass(frozen=True)
class Across:
    """``inner`` once for each of the blocks that another dimension of the parameter is made of.

    It stands around a whole axis only.

    Attributes:
        blocks: the spaces whose blocks those are and how many each has, outermost first; the other dimension's own axis
            permutes them.
        dim: the other dimension.
        inner: the axis inside a block.
    """

    blocks: tuple[tuple[str, int], ...]
    dim: int
    inner: Axis

    @property
    def size(self) -> int | None:
        return self.inner.size

    @property
    def spaces(self) -> tuple[str, ...]:
        """The spaces of the blocks."""
        return tuple(space for space, _ in self.blocks)

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of blocks of each."""
        return tuple(count for _, count in self.blocks)

    def dual(self) -> Across:
        return Across(self.blocks, self.dim, self.inner.dual())


Axis = Fixed | Along | Per | Concat | Across


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
        case Across():
            yield from spaces_of(axis.inner)


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
        case Across():
            yield from sides_of(axis.inner)


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
        case Across():
            for inner in chains(axis.inner):
                yield (*axis.spaces, *inner)
        case Concat():
            for part in axis.parts:
                yield from chains(part)


def within(axis: Axis) -> Axis:
    """The axis of one dimension by itself, without what indexes its copies across other dimensions."""
    return axis.inner if isinstance(axis, Across) else axis


def unfolded(axis: Axis, tensor: Tensor, dim: int) -> tuple[Tensor, tuple[str, ...]]:
    """A dimension of a tensor as rows, and the spaces of the blocks around it that lie along another dimension.

    Returns:
        Shape ``(*counts, size, features)``, a view where strides allow, and the names of the spaces that count; what
        acts on it is ``within(axis)``.
    """
    if not isinstance(axis, Across):
        rows = tensor.movedim(dim, 0)
        return rows.reshape(rows.shape[0], -1), ()
    depth = len(axis.blocks)
    blocks = tensor.movedim((axis.dim, dim), (0, 1)).unflatten(0, (*axis.counts, -1)).movedim(depth + 1, depth)
    return blocks.reshape(*axis.counts, tensor.shape[dim], -1), axis.spaces


def refolded(axis: Axis, rows: Tensor, shape: Sequence[int], dim: int) -> Tensor:
    """The tensor of shape `shape` whose dimension `dim` is `rows`, as `unfolded` gives them."""
    if not isinstance(axis, Across):
        rest = [length for position, length in enumerate(shape) if position != dim]
        return rows.reshape(shape[dim], *rest).movedim(0, dim)
    rest = [length for position, length in enumerate(shape) if position not in (dim, axis.dim)]
    depth, count = len(axis.blocks), math.prod(axis.counts)
    blocks = rows.reshape(*axis.counts, shape[dim], shape[axis.dim] // count, *rest)
    return blocks.movedim(depth + 1, depth).flatten(0, depth).movedim((0, 1), (axis.dim, dim))


def leaves(axis: Axis, tensor: Tensor, dim: int) -> Iterator[Leaf]:
    """Cut dimension `dim` of `tensor` into the innermost stretches of `axis`, as views where strides allow."""
    yield from _leaves(within(axis), *unfolded(axis, tensor, dim))


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
