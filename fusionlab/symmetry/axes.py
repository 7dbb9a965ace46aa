"""Axes: one dimension of one parameter, labelled with the spaces it runs through.

Six kinds are enough for the projections that transformers have. With `heads` a space of permutations, ``qk`` and
``vo`` spaces with one element for each head and ``residual`` a space of its own:

- ``Fixed(10)``: class labels, pixels, positions. Nothing acts on it.
- ``Along("residual", 768)``: the axis is the space.
- ``Per("heads", 12, Along("qk", 64))``: 12 blocks of 64; the blocks are permuted, each is a vector of its own copy.
- ``Concat(Per(...), Per(...), ...)``: segments, as in a fused query-key-value projection.
- ``Across((("experts", 8),), 0, Along("ffn", 56))``: as a block of ``Per`` has its own copy, but the blocks lie along
  another dimension (0) of the same parameter, whose own axis permutes them: the weights of all experts in one tensor.
- ``Scaled("residual.norm.scale", -1, Along("residual.signs", 1))``: a space of dimension one, by whose number, to a
  power, everything inside is multiplied. A factor by itself and to the power 1 or -1 is ``Along("ffn.scale", 1)``;
  `scaled` knows which of the two it is.

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


@dataclass(frozen=True)
class Scaled:
    """``inner``, multiplied by the number that a space of dimension one is, to a power.

    Attributes:
        space: the space of dimension one.
        power: not zero; negative where a dual acts.
        inner: the axis that is multiplied.
    """

    space: str
    power: int
    inner: Axis

    def __post_init__(self) -> None:
        if not self.power or (self.inner == Fixed(1) and abs(self.power) == 1):
            raise ValueError(f"{self.space} would scale {self.inner} by the power {self.power}; expected another axis")

    @property
    def size(self) -> int | None:
        return self.inner.size

    def dual(self) -> Scaled:
        return Scaled(self.space, -self.power, self.inner.dual())


Axis = Fixed | Along | Per | Concat | Across | Scaled


def scaled(space: str, power: int, inner: Axis) -> Axis:
    """The axis `inner` with a factor around it, to a power that is not zero, in the one way that this is written."""
    if inner == Fixed(1) and abs(power) == 1:
        return Along(space, 1, power < 0)
    return Scaled(space, power, inner)


def spaces_of(axis: Axis) -> Iterator[str]:
    """Every space that acts somewhere on `axis`, outermost first, with repetition."""
    match axis:
        case Along():
            yield axis.space
        case Per() | Scaled():
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
        case Per() | Across():
            yield from sides_of(axis.inner)
        case Concat():
            for part in axis.parts:
                yield from sides_of(part)
        case Scaled():
            yield axis.space, axis.power < 0
            yield from sides_of(axis.inner)


def chains(axis: Axis) -> Iterator[tuple[str, ...]]:
    """The spaces that act inside each other on `axis`, outermost first, once for each innermost stretch."""
    match axis:
        case Fixed():
            yield ()
        case Along():
            yield (axis.space,)
        case Per() | Scaled():
            for inner in chains(axis.inner):
                yield (axis.space, *inner)
        case Across():
            for inner in chains(axis.inner):
                yield (*axis.spaces, *inner)
        case Concat():
            for part in axis.parts:
                yield from chains(part)


def powers(axis: Axis) -> Iterator[dict[str, int]]:
    """The spaces that run along each innermost stretch of `axis`, factors first, and the powers by which they act."""
    match axis:
        case Fixed():
            yield {}
        case Along():
            yield {axis.space: -1 if axis.is_dual else 1}
        case Per() | Across():
            yield from powers(axis.inner)
        case Scaled():
            for inner in powers(axis.inner):
                yield {axis.space: axis.power, **inner}
        case Concat():
            for part in axis.parts:
                yield from powers(part)


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
        # Of no entries nothing says how many features there are; a vector has one.
        return (rows.flatten(1) if rows.ndim > 1 else rows.unsqueeze(1)), ()
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
