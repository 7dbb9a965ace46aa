"""Two axes of one parameter, a small model's and a larger one's, and the map from the first to the second."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from fusionlab.errors import InputError
from fusionlab.growing.factors import AS_IT_SAYS, Choice, Use
from fusionlab.growing.gather import Gather
from fusionlab.symmetry import Blueprint
from fusionlab.symmetry.axes import Across, Along, Axis, Concat, Fixed, Per, Scaled
from fusionlab.symmetry.groups import Orthogonal, OrthogonalFixingOnes, Rotary
from fusionlab.symmetry.roles import Role

# Spaces that norms read whole, so that no coordinate may be added without a look at the others.
STREAMS = (Role.RESIDUAL, Role.EMBEDDING)


@dataclass(frozen=True)
class Heads:
    """A layout of attention heads: key-value heads, and the queries that share each.

    Attributes:
        pairs: key-value heads.
        queries: query heads of each.
    """

    pairs: int
    queries: int


@dataclass
class Widening:
    """The maps from a small model's axes to a larger model's.

    Attributes:
        small: the small model's blueprint.
        large: the larger model's, in the same gauge.
        choice: what the axes leave open.
        sizes: by space of the small model, its size there and in the larger model; filled as axes are mapped.
        heads: the numbers of query heads in the small and in the larger model, of every kind of layer.
        pairs: the same of key-value heads.
    """

    small: Blueprint
    large: Blueprint
    choice: Choice
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    heads: set[tuple[int, int]] = field(default_factory=set)
    pairs: set[tuple[int, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._signed = {space.index[0] for space in self.small.spaces.values() if space.role in STREAMS and space.index}

    def of(self, small: Axis, large: Axis, use: Use = AS_IT_SAYS) -> Gather:
        """The map from one axis to another.

        Args:
            small: of a parameter of the small model.
            large: of the same parameter of the larger one.
            use: what the parameter is to a stream.

        Raises:
            InputError: a dimension that cannot be grown.
        """
        small, large = _without_factors(small, self.small), _without_factors(large, self.large)
        match small, large:
            case Across() | Scaled(), Across() | Scaled() if type(small) is type(large):
                return self.of(small.inner, large.inner, use)
            case Concat(), Concat() if len(small.parts) == len(large.parts):
                pairs = zip(small.parts, large.parts, strict=True)
                return Gather.beside(*(self.of(one, other, use) for one, other in pairs))
            case Fixed(), Fixed():
                if small.size is None or small.size != large.size:
                    raise UnequalError(small.size, large.size)
                return Gather.identity(small.size)
            case Along(), Along():
                return self._along(small, large, use)
            case (Per(), _) | (_, Per()):
                return self._blocks(small, large, use)
        raise UnequalError(small.size, large.size)

    def share_of_mean(self, small: Axis, large: Axis, of_norm: bool) -> float | None:
        """The share of the mean over the small axis that every entry of the larger one gets, beside the rest.

        Only where a group keeps the all-ones vector: what is read of the mean of a folded stream is never seen, and
        zeros behind would make of it a direction that other models write to. With it, the map of a stream is an
        isometry of the all-ones vectors and of their complements, times a factor.

        Args:
            small: of a parameter of the small model.
            large: of the same parameter of the larger one.
            of_norm: the parameter is the bias of a norm; whatever else is written to a folded stream has mean zero, but
                where something reads it without a norm.
        """
        if not (isinstance(small, Along) and isinstance(large, Along)) or small.size == large.size:
            return None
        if not isinstance(self.small.spaces[small.space].group, OrthogonalFixingOnes):
            return None
        stretch = self.choice.stretch.of(small.is_dual, of_norm)
        if small.is_dual:
            return stretch * small.size / large.size
        return stretch if of_norm or small.space not in self.small.centred else None

    def is_centred(self, small: Axis) -> bool:
        """True if what is written along an axis of the small model has mean zero, as in a folded stream."""
        if not isinstance(small, Along) or small.is_dual or small.space not in self.small.centred:
            return False
        return isinstance(self.small.spaces[small.space].group, OrthogonalFixingOnes)

    def _along(self, small: Along, large: Along, use: Use) -> Gather:
        space = self.small.spaces[small.space]
        if space.role in (Role.HEADS, Role.QUERIES):
            return self._heads_of(small, large)
        self._note(small.space, small.size, large.size)
        if space.role in STREAMS:
            return self._stream(small.space, small.size, large.size, small.is_dual and not use.primal, use)
        if isinstance(space.group, Rotary) and small.size != large.size:
            raise InputError(
                f"rotary positions turn heads {small.size} wide by other frequencies than heads {large.size} wide; "
                f"expected a larger model with the same width of a head, and more heads"
            )
        if space.role == Role.LATENT and self.choice.latent_is_normed:
            return Gather.padding(
                small.size, large.size, math.sqrt(large.size / small.size) ** _sign(small, use.primal)
            )
        # Only products of primal and dual are seen, so the factor of the scores goes to one of the two.
        widened = space.role == Role.QUERY_KEY and not small.is_dual and self.choice.scores_by_root
        factor = math.sqrt(large.size / small.size) if widened else 1.0
        if space.role == Role.QUERY_KEY and self.choice.stretch.with_heads and not use.gain:
            factor *= self.choice.stretch.length
        return Gather.padding(small.size, large.size, factor)

    def _stream(self, name: str, size: int, larger: int, dual: bool, use: Use) -> Gather:
        """The stream's map: as long an entry on average as before, so that a norm's epsilon does what it did.

        Zeros are put behind where the mean over features is not seen: under RMSNorm, and in a folded model, which
        writes nothing but what has mean zero (see `share_of_mean`). Entries are repeated elsewhere.
        """
        ratio = larger / size
        # Gains may be stored less one, so whoever knows that stretches them; signs of entries lie inside of the stream.
        once = not use.gain and not self.small.spaces[name].index
        stretch = self.choice.stretch.of(dual, use.of_norm) if once else 1.0
        if isinstance(self.small.spaces[name].group, Orthogonal) or name in self._signed:
            return Gather.padding(size, larger, stretch * (1.0 if use.gain else ratio ** (-0.5 if dual else 0.5)))
        if larger % size:
            raise InputError(
                f"the residual stream is {size} wide and would be {larger} wide, and LayerNorms that cannot be folded "
                f"(behind the sums, as in BERT, or before tied embeddings) see its mean; expected a whole multiple of "
                f"{size}, or for tied embeddings a model whose embeddings are untied (--untie)"
            )
        return Gather.repeating(size, larger, stretch * (1 / ratio if dual and not use.gain else 1.0))

    def _blocks(self, small: Axis, large: Axis, use: Use) -> Gather:
        """Blocks that a space counts; an axis that does not count them has one."""
        names = [axis.space for axis in (small, large) if isinstance(axis, Per)]
        space = (self.small if isinstance(small, Per) else self.large).spaces[names[0]]
        if space.role in (Role.HEADS, Role.QUERIES):
            return self._heads_of(small, large)
        if not (isinstance(small, Per) and isinstance(large, Per)):
            raise UnequalError(small.size, large.size)
        self._note(small.space, small.count, large.count)
        inner = self.of(small.inner, large.inner, use)
        if space.role in STREAMS:
            dual = any(axis_dual for axis_dual in _duals(small.inner)) and not use.primal
            return self._stream(small.space, small.count, large.count, dual, use).around(inner)
        return Gather.padding(small.count, large.count).around(inner)

    def _heads_of(self, small: Axis, large: Axis) -> Gather:
        """Blocks of attention heads, or of the queries that share one."""
        ours, theirs = _layout(small, self.small), _layout(large, self.large)
        inner = self.of(_inside(small, self.small), _inside(large, self.large))
        few, many = self._heads(small, self.small), self._heads(large, self.large)
        self._fits(few, many)
        # Keys and values have no queries of their own where several queries share them.
        shared = (few.queries > 1 and ours.queries == 1) or (many.queries > 1 and theirs.queries == 1)
        return _placed(few, many, shared).around(inner)

    def _heads(self, axis: Axis, blueprint: Blueprint) -> Heads:
        """All heads of the layer that an axis belongs to."""
        if not isinstance(axis, Along | Per) or not _counts_heads(axis, blueprint):
            return Heads(1, 1)
        space = blueprint.spaces[axis.space]
        if space.role == Role.QUERIES:
            # One key-value head is no permutation, so the queries stand by themselves.
            return Heads(1, space.group.size)
        queries = [s for s in blueprint.spaces.values() if s.role == Role.QUERIES and s.index == (axis.space,)]
        return Heads(space.group.size, queries[0].group.size if queries else 1)

    def _fits(self, few: Heads, many: Heads) -> None:
        needed = few.pairs * max(1, math.ceil(few.queries / many.queries))
        self.heads.add((few.pairs * few.queries, many.pairs * many.queries))
        self.pairs.add((few.pairs, many.pairs))
        if needed > many.pairs:
            raise InputError(
                f"{few.pairs} key-value heads of {few.queries} queries each do not fit into {many.pairs} of "
                f"{many.queries}; expected a larger model with at least {needed} key-value heads"
            )

    def _note(self, name: str, size: int, larger: int) -> None:
        self.sizes[name] = (size, larger)
        if larger < size:
            raise UnequalError(size, larger)


class UnequalError(Exception):
    """A dimension whose two sizes do not fit; whoever knows the parameter tells of it."""

    def __init__(self, small: int | None, large: int | None) -> None:
        super().__init__(f"{small} and {large}")
        self.small, self.large = small, large


def _placed(few: Heads, many: Heads, shared: bool) -> Gather:
    """The heads of a small model among those of a larger one.

    Args:
        few: the small model's layout.
        many: the larger one's.
        shared: the blocks are key-value heads, each once; query heads otherwise.
    """
    # A key-value head with more queries than one of the larger model has room for is there several times.
    times = max(1, math.ceil(few.queries / many.queries))
    pairs = torch.full((many.pairs,), -1)
    pairs[: few.pairs * times] = torch.arange(few.pairs).repeat_interleave(times)
    if shared:
        return Gather(pairs, torch.ones(many.pairs, dtype=torch.float64), few.pairs)
    part = torch.arange(many.pairs) % times if times > 1 else torch.zeros(many.pairs, dtype=torch.int64)
    query = part[:, None] * many.queries + torch.arange(many.queries)[None]
    source = pairs[:, None] * few.queries + query
    source[(pairs < 0)[:, None] | (query >= few.queries)] = -1
    return Gather(source.flatten(), torch.ones(many.pairs * many.queries, dtype=torch.float64), few.pairs * few.queries)


def _counts_heads(axis: Axis, blueprint: Blueprint) -> bool:
    return isinstance(axis, Along | Per) and blueprint.spaces[axis.space].role in (Role.HEADS, Role.QUERIES)


def _layout(axis: Axis, blueprint: Blueprint) -> Heads:
    """The blocks of heads that an axis itself counts."""
    counts = {Role.HEADS: 1, Role.QUERIES: 1}
    while isinstance(axis, Along | Per) and _counts_heads(axis, blueprint):
        counts[blueprint.spaces[axis.space].role] = axis.count if isinstance(axis, Per) else axis.size
        axis = axis.inner if isinstance(axis, Per) else Fixed(1)
    return Heads(counts[Role.HEADS], counts[Role.QUERIES])


def _inside(axis: Axis, blueprint: Blueprint) -> Axis:
    """The axis inside one head: a number by itself where the axis has one for each."""
    while isinstance(axis, Along | Per) and _counts_heads(axis, blueprint):
        axis = axis.inner if isinstance(axis, Per) else Fixed(1)
    return axis


def _without_factors(axis: Axis, blueprint: Blueprint) -> Axis:
    """An axis of a stream without its factors, which stretch what reads a gain: deeper models have more of them."""
    if not isinstance(axis, Per):
        return axis
    inner = axis.inner
    while isinstance(inner, Scaled) and blueprint.spaces[inner.space].role == Role.RESIDUAL_SCALE:
        if inner.inner == Fixed(1):
            return Along(axis.space, axis.count, inner.power < 0)
        inner = inner.inner
    if isinstance(inner, Along) and blueprint.spaces[inner.space].role == Role.RESIDUAL_SCALE:
        return Along(axis.space, axis.count, inner.is_dual)
    return Per(axis.space, axis.count, inner)


def _duals(axis: Axis) -> list[bool]:
    return [axis.is_dual] if isinstance(axis, Along) else []


def _sign(axis: Along, primal: bool) -> int:
    return -1 if axis.is_dual and not primal else 1
