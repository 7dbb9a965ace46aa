"""Types of dimensions: how a dimension of a tensor is made of hidden spaces.

A dimension is a product of factors, outermost first. A factor is an `Atom` (one hidden space), a `Sum` (segments laid
one after the other) or a `Case` (what depends on another dimension): 48 = heads(4) x inner(12), 112 = gate(56) +
up(56). Operations *unify* types. An atom's variable is then linked to an equal one or bound to a finer type, so that in
the end one variable is everything that must be moved together. A dimension of length 1 is the empty product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate

# A stretch of a parameter: its name, the dimension, and the count of the stretch inside the dimension.
Stretch = tuple[str, int, int]
# A linear expression in the unknown exponents of stretches.
Exponent = Mapping[Stretch, int]


class ClashError(Exception):
    """Two types do not fit each other."""


class Variable:
    """A hidden space as far as it is known: linked to an equal one, bound to a finer type, or free.

    Attributes:
        size: its length.
        is_fixed: something tells its coordinates apart, so that none may change places.
    """

    def __init__(self, size: int, is_fixed: bool = False) -> None:
        self.size, self.is_fixed = size, is_fixed
        self.link: Variable | None = None
        self.bound: Dim | None = None


@dataclass(eq=False)
class Atom:
    """One hidden space, and the power of its factors by which a tensor scales along it."""

    variable: Variable
    exponent: Exponent = field(default_factory=dict)


@dataclass(eq=False)
class Sum:
    """Segments laid one after the other; ``tag`` is what a `Case` refers to."""

    parts: tuple[Dim, ...]
    tag: object | None = None


@dataclass(eq=False)
class Case:
    """A type that depends on a dimension: queries, keys and values in a tensor viewed as (..., 3, heads, inner)."""

    options: tuple[Dim, ...]
    tag: object | None = None


Factor = Atom | Sum | Case
Dim = tuple[Factor, ...]


def fresh(size: int, is_fixed: bool = False) -> Dim:
    """A dimension of which only the length is known."""
    return () if size == 1 else (Atom(Variable(size, is_fixed)),)


def size_of(dim: Dim) -> int:
    """The length of a dimension."""
    total = 1
    for factor in dim:
        match factor:
            case Atom():
                total *= factor.variable.size
            case Sum():
                total *= sum(map(size_of, factor.parts))
            case Case():
                total *= size_of(factor.options[0])
    return total


def mapped(dim: Dim, function: Callable[[Exponent], Exponent]) -> Dim:
    """The same type with other exponents."""

    def one(factor: Factor) -> Factor:
        match factor:
            case Atom():
                return Atom(factor.variable, function(factor.exponent))
            case Sum():
                return Sum(tuple(mapped(part, function) for part in factor.parts), factor.tag)
            case Case():
                return Case(tuple(mapped(option, function) for option in factor.options), factor.tag)

    return tuple(map(one, dim))


def resolve(dim: Dim) -> Dim:
    """The finest form that is known by now."""
    out: list[Factor] = []
    for factor in dim:
        match factor:
            case Atom():
                variable = representative(factor.variable)
                if variable.bound is None:
                    out.append(Atom(variable, factor.exponent))
                else:
                    exponent = factor.exponent
                    out += resolve(mapped(variable.bound, lambda _, e=exponent: e))  # type: ignore[misc]
            case Sum():
                parts: list[Dim] = []
                for part in map(resolve, factor.parts):
                    inner = part[0] if len(part) == 1 else None
                    parts += inner.parts if isinstance(inner, Sum) else [part]
                out += parts[0] if len(parts) == 1 else [Sum(tuple(parts), factor.tag)]
            case Case():
                options = tuple(map(resolve, factor.options))
                same = all(equal_types(options[0], option) for option in options)
                out += options[0] if same else [Case(options, factor.tag)]
    return tuple(out)


def representative(variable: Variable) -> Variable:
    """The variable that stands for all that were linked to it."""
    while variable.link is not None:
        variable = variable.link
    return variable


def equal_types(x: Dim, y: Dim) -> bool:
    """Two resolved types are the same, exponents included."""
    return len(x) == len(y) and all(map(_equal_factors, x, y))


def _equal_factors(f: Factor, g: Factor) -> bool:
    if isinstance(f, Atom) and isinstance(g, Atom):
        return f.variable is g.variable and f.exponent == g.exponent
    if isinstance(f, Sum) and isinstance(g, Sum):
        return len(f.parts) == len(g.parts) and all(map(equal_types, f.parts, g.parts))
    return False


def chosen(dims: Sequence[Dim], dim: int, start: int, stop: int) -> list[Dim]:
    """The other dimensions' types where dimension `dim` runs from `start` up to `stop`.

    They differ from what they were where they depend on that dimension and the stretch is one of its segments or
    several.
    """
    which = resolve(dims[dim])
    only = which[0] if len(which) == 1 else None
    if not isinstance(only, Sum) or only.tag is None:
        return list(dims)
    ends = [0, *accumulate(map(size_of, only.parts))]
    first = max(position for position, end in enumerate(ends[:-1]) if end <= start)
    last = min(position for position, end in enumerate(ends) if end >= stop)
    whole = (ends[first], ends[last]) == (start, stop)
    if last - first > 1 and (not whole or last - first == len(only.parts)):
        return list(dims)
    tag = object()

    def one(factor: Factor) -> Dim:
        if not (isinstance(factor, Case) and factor.tag is only.tag):
            return (factor,)
        options = factor.options[first:last]
        return options[0] if len(options) == 1 else (Case(options, tag),)

    out = [tuple(f for factor in resolve(d) for f in one(factor)) for d in dims]
    if last - first > 1:
        # As a whole it now tells the segments that are left.
        out[dim] = (Sum(only.parts[first:last], tag),)
    return out


def atoms(dim: Dim) -> Iterator[Atom]:
    """Every atom of a type."""
    for factor in resolve(dim):
        match factor:
            case Atom():
                yield factor
            case Sum():
                for part in factor.parts:
                    yield from atoms(part)
            case Case():
                for option in factor.options:
                    yield from atoms(option)


def freeze(dim: Dim) -> Dim:
    """The type, whose coordinates are told apart from now on."""
    for atom in atoms(dim):
        atom.variable.is_fixed = True
    return dim


def plus(x: Exponent, y: Exponent, times: int = 1) -> Exponent:
    """The sum of two expressions, the second taken `times` times."""
    out = {key: x.get(key, 0) + times * y.get(key, 0) for key in x.keys() | y.keys()}
    return {key: value for key, value in out.items() if value}


def total(exponents: Sequence[Exponent]) -> Exponent:
    """The sum of several expressions."""
    return reduce(plus, exponents, {})


def parity(stretch: Stretch) -> Stretch:
    """The name under which an output tells a stretch's power modulo two."""
    name, dim, count = stretch
    return name, dim, -1 - count
