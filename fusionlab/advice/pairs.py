"""Two models held against each other, parameter by parameter: what they share, in numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fusionlab.advice.naming import same_names
from fusionlab.advice.nearness import LEAST, RELATIONS, UNITS, Nearness, Relation, spread, worst_axis
from fusionlab.advice.tensors import Reads, Weights
from fusionlab.errors import InputError
from fusionlab.finite import not_finite
from fusionlab.streaming.stored import TensorSpec

# Numbers that are read at once, and the longest row that is looked at.
_PIECE, _ROW = 2**20, 2**16
# Buffers that are meant to hold infinities.
_MASK = re.compile(r"(.*\.)?\w*(mask|masked_bias)")
MATRICES, VECTORS = "all of these", "vectors (biases, gains)"


@dataclass
class Sums:
    """Sums over the numbers of two tensors, from which their lengths, distance and angle follow.

    Attributes:
        count: of numbers.
        equal: how many are the same in both.
        totals: sums of a, b, a², b², ab and (a-b)², in float64.
    """

    count: int = 0
    equal: int = 0
    totals: Tensor = field(default_factory=lambda: torch.zeros(6, dtype=torch.float64))

    def add(self, first: Tensor, second: Tensor) -> None:
        """Count numbers in.

        Args:
            first: of one tensor, flattened.
            second: those of the other in the same places.
        """
        a, b = first.double(), second.double()
        difference = a - b
        sums = (a.sum(), b.sum(), a @ a, b @ b, a @ b, difference @ difference)
        self.count += len(a)
        self.equal += int((first == second).sum())
        self.totals = self.totals + torch.stack(sums)

    @property
    def centred(self) -> tuple[float, float, float]:
        """Squared lengths of both and their product, each tensor less its mean."""
        a, b, aa, bb, ab, _ = self.totals.tolist()
        return aa - a * a / self.count, bb - b * b / self.count, ab - a * b / self.count


@dataclass(frozen=True)
class Kind:
    """The parameters whose names differ in numbers alone, such as the query weights of all layers.

    Attributes:
        name: theirs, with an asterisk in place of each number.
        tensors: how many.
        relation: what most of them share; None where they are too small to tell.
        nearest: the share of units that are nearest to themselves, mean over those that tell; None where none does.
        chance: the same for unrelated models.
        cosine: of the angle between the two models' numbers, each tensor less its mean; None where all of one model are
            zero by then and those of the other are not the same, so that there is no angle.
        distance: between them, relative to the geometric mean of their lengths; None where all of one model are zero.
        equal: the share of numbers that are the same; None, as all of these, without tensors.
    """

    name: str
    tensors: int
    relation: Relation | None
    nearest: float | None
    chance: float | None
    cosine: float | None
    distance: float | None
    equal: float | None

    @property
    def angle(self) -> float | None:
        """The angle between the two models' numbers, in degrees; None where there is none."""
        return None if self.cosine is None else math.degrees(math.acos(max(-1.0, min(1.0, self.cosine))))


@dataclass(frozen=True)
class Pair:
    """All that was found of two models.

    Attributes:
        first: the name of one.
        second: the name of the other.
        kinds: of parameters of two dimensions and more that both have in one shape.
        matrices: all of these together.
        vectors: all parameters of one dimension together; None where there are none. They are not judged by.
        whole: all parameters together.
        same_lengths: whether every matrix is as long in one as in the other, to rounding, although they are not the
            same: so it is with one model in two orders.
        only: names that one model lacks.
        shapes: names whose shapes differ.
        lengths: of what two adapters change of their base model; None for whole models.
        untold: parts of what adapters change that do not count in, since the base model cannot be read.
    """

    first: str
    second: str
    kinds: Sequence[Kind]
    matrices: Kind
    vectors: Kind | None
    whole: Kind
    same_lengths: bool
    only: Sequence[str]
    shapes: Sequence[str]
    lengths: tuple[float, float] | None = None
    untold: Sequence[str] = ()

    @property
    def relation(self) -> Relation | None:
        """The relation that most of the kinds have; None where they are too small to tell."""
        return majority([kind.relation for kind in self.kinds])


def majority(relations: Sequence[Relation | None]) -> Relation | None:
    """The most that more than half of some parameters share at least, of those that tell; None where none does.

    Args:
        relations: one for each.
    """
    ranks = sorted(RELATIONS.index(relation) for relation in relations if relation is not None)
    return RELATIONS[ranks[(len(ranks) - 1) // 2]] if ranks else None


def pattern(name: str) -> str:
    """A parameter's name with an asterisk in place of each number."""
    return re.sub(r"\d+", "*", name)


def some(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more" if more > 0 else "")


def compare(first: Weights, second: Weights, advance: Callable[[int], object] = lambda _: None) -> Pair:
    """Hold two models against each other; all numbers of both are read once.

    Args:
        first: one.
        second: the other, of the same architecture or not: what both have in one shape is compared.
        advance: told the bytes of the first that were read.

    Raises:
        InputError: numbers that are not finite, but in masks.
    """
    names = same_names(first.tensors, second.tensors)
    shapes = [name for name, other in names.items() if first.tensors[name].shape != second.tensors[other].shape]
    shared = {n: other for n, other in names.items() if n not in set(shapes) and not _MASK.fullmatch(n)}
    only = [*(n for n in first.tensors if n not in names), *sorted(second.tensors.keys() - set(names.values()))]
    sums: dict[str, Sums] = {}
    near: dict[str, Nearness | None] = {}
    with first.opened() as one, second.opened() as other:
        for name, called in shared.items():
            spec = first.tensors[name]
            sums[name] = _summed((one, name), (other, called), spec, advance)
            if not bool(torch.isfinite(sums[name].totals).all()):
                _refuse_not_finite(first, one, name)
                _refuse_not_finite(second, other, called)
                raise InputError(
                    f"the parameter {name} of {first.name} and {second.name} has a length that is no finite number in "
                    f"float64; expected smaller numbers"
                )
            matrix = _as_matrix(spec.shape)
            if len(matrix) > 1 and sums[name].equal < spec.count:
                near[name] = worst_axis(*(_block(r, n, matrix) for r, n in ((one, name), (other, called))))
    matrices = [name for name in shared if len(_as_matrix(first.tensors[name].shape)) > 1]
    kinds: dict[str, list[str]] = {}
    for name in matrices:
        kinds.setdefault(pattern(name), []).append(name)
    vectors = [name for name in shared if name not in set(matrices)]
    found = [_kind(kind, [sums[n] for n in members], [near.get(n) for n in members]) for kind, members in kinds.items()]
    return Pair(
        first.name,
        second.name,
        found,
        _kind(MATRICES, [sums[name] for name in matrices], []),
        _kind(VECTORS, [sums[name] for name in vectors], []) if vectors else None,
        _kind("all", list(sums.values()), []),
        _same_lengths([(sums[n], first.tensors[n], second.tensors[shared[n]]) for n in matrices]),
        only,
        shapes,
    )


def _as_matrix(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without dimensions of size 1, its first dimensions as one where a row would be too long to read."""
    sizes = tuple(size for size in shape if size > 1)
    while len(sizes) > 2 and math.prod(sizes[1:]) > _ROW:
        sizes = (sizes[0] * sizes[1], *sizes[2:])
    return sizes


def _block(reader: Reads, name: str, shape: tuple[int, ...]) -> Tensor:
    """Some rows of a tensor, of a long one their beginning."""
    row = math.prod(shape[1:])
    kept = min(row, _ROW)
    rows = [reader.read(name, place * row, kept) for place in spread(shape[0], UNITS).tolist()]
    return torch.stack(rows).reshape(len(rows), *(shape[1:] if kept == row else (kept,)))


def _refuse_not_finite(model: Weights, reader: Reads, name: str) -> None:
    """Refuse a parameter with numbers that are not finite, and say how many there are."""
    count = model.tensors[name].count
    pieces = (reader.read(name, start, min(_PIECE, count - start)) for start in range(0, count, _PIECE))
    # Numbers of 8 bits have no test of their own.
    if bad := sum(int((~torch.isfinite(piece.double())).sum()) for piece in pieces):
        raise not_finite(model.source or model.name, name, bad, count)


def _summed(
    first: tuple[Reads, str], second: tuple[Reads, str], spec: TensorSpec, advance: Callable[[int], object]
) -> Sums:
    sums = Sums()
    for start in range(0, spec.count, _PIECE):
        count = min(_PIECE, spec.count - start)
        sums.add(*(reader.read(name, start, count) for reader, name in (first, second)))
        advance(count * spec.dtype.itemsize)
    return sums


def _kind(name: str, sums: Sequence[Sums], near: Sequence[Nearness | None]) -> Kind:
    """Some tensors together; units of one that is the same in both are nearest to themselves."""
    relations: list[Relation | None] = []
    for one, measured in zip(sums, near, strict=False):
        same = one.count >= LEAST and one.equal == one.count
        relations.append("own" if same else None if measured is None else measured.relation)
    telling = [measured for measured in near if measured is not None]
    same_units = [1.0 for one, relation in zip(sums, relations, strict=False) if relation and one.equal == one.count]
    shares = [*same_units, *(measured.share for measured in telling)]
    aa, bb, ab = (math.fsum(parts) for parts in zip(*(one.centred for one in sums), strict=True)) if sums else (0, 0, 0)
    totals = torch.stack([one.totals for one in sums]).sum(0).tolist() if sums else [0.0] * 6
    numbers = sum(one.count for one in sums)
    lengths, inner = math.sqrt(max(totals[2], 0) * max(totals[3], 0)), math.sqrt(max(aa, 0) * max(bb, 0))
    equal = sum(one.equal for one in sums)
    return Kind(
        name,
        len(sums),
        majority(relations),
        math.fsum(shares) / len(shares) if shares else None,
        math.fsum(1 / measured.units for measured in telling) / len(telling) if telling else None,
        None if not numbers else 1.0 if equal == numbers else ab / inner if inner else None,
        None if not numbers else 0.0 if equal == numbers else math.sqrt(totals[5] / lengths) if lengths else None,
        equal / numbers if numbers else None,
    )


def _same_lengths(found: Sequence[tuple[Sums, TensorSpec, TensorSpec]]) -> bool:
    """True if every matrix has the same length in both models, but not the same numbers.

    Renumbering keeps lengths exactly and turning to rounding; those of models trained apart agree to about 2 over the
    root of the count of numbers, for no more than chance.
    """
    different = False
    for sums, *specs in found:
        rounding = max(torch.finfo(spec.dtype).eps for spec in specs)
        aa, bb = sums.totals[2:4].tolist()
        if abs(aa - bb) > max(1e-6, 4 * rounding / math.sqrt(sums.count)) * max(aa, bb):
            return False
        different |= sums.equal < sums.count
    return different
