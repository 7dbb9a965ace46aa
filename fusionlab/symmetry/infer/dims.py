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
from itertools import accumulate, zip_longest

# A stretch of a parameter: its name, the dimension, and the count of the stretch inside the dimension.
Stretch = tuple[str, int, int]
# A linear expression in the unknown exponents of stretches.
Exponent = Mapping[Stretch, int]
# Types inside types: deeper ones are taken for a contradiction.
DEEPEST = 60


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


def plain(dim: Dim) -> Dim:
    """A resolved type without cases; options that were told apart become one."""
    out: list[Factor] = []
    for factor in resolve(dim):
        if isinstance(factor, Case):
            for other in factor.options[1:]:
                unify(factor.options[0], other)
            out += resolve(factor.options[0])
        else:
            out.append(factor)
    return tuple(out)


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


def bind(variable: Variable, dim: Dim) -> None:
    """Make a variable a finer type.

    Raises:
        ClashError: the type contains the variable.
    """
    if any(atom.variable is variable for atom in atoms(dim)):
        raise ClashError("a type inside itself")
    if variable.is_fixed:
        freeze(dim)
    variable.bound = mapped(dim, lambda _: {})


def chop(dim: Dim, inner: int) -> tuple[Dim, Dim]:
    """A dimension as a product, the second factor of length `inner`.

    Raises:
        ClashError: the lengths do not divide.
    """
    factors, taken, size = list(resolve(dim)), (), 1
    result: Dim = taken
    while size < inner:
        if not factors:
            raise ClashError("too short to be divided")
        factor = factors.pop()
        length, need = size_of((factor,)), inner // size
        if inner % size or (length % need if length > need else need % length):
            raise ClashError("lengths do not divide")
        if length > need:
            outer, rest = _halves(factor, need)
            factors += outer
            result, size = rest + result, inner
        else:
            result, size = (factor, *result), size * length
    return tuple(factors), result


def _halves(factor: Factor, inner: int) -> tuple[Dim, Dim]:
    """One factor as a product."""
    if isinstance(factor, Atom):
        outer, rest = fresh(factor.variable.size // inner), fresh(inner)
        bind(factor.variable, outer + rest)
        exponent = factor.exponent
        return mapped(outer, lambda _: exponent), mapped(rest, lambda _: exponent)
    parts = _runs(factor.parts, inner) if isinstance(factor, Sum) else factor.options
    outers, inners = zip(*(chop(part, inner) for part in parts), strict=True)
    tag = factor.tag if factor.tag is not None and len(parts) == len(_options(factor)) else object()
    whole: Factor = Sum(tuple(outers), tag) if isinstance(factor, Sum) else Case(tuple(outers), tag)
    return (whole,), resolve((Case(tuple(inners), tag),))


def _options(factor: Sum | Case) -> tuple[Dim, ...]:
    return factor.parts if isinstance(factor, Sum) else factor.options


def _runs(parts: tuple[Dim, ...], inner: int) -> list[Dim]:
    """Segments of which blocks of length `inner` can be made: neighbours that are one block together are one."""
    out: list[Dim] = []
    run: list[Dim] = []
    for part in parts:
        run.append(part)
        length = sum(map(size_of, run))
        if len(run) > 1 and length > inner:
            raise ClashError("a block across segments")
        if length % inner == 0:
            out.append(run[0] if len(run) == 1 else (Sum(tuple(run)),))
            run = []
    if run:
        raise ClashError("lengths do not divide")
    return out


def cut(dim: Dim, start: int, stop: int) -> Dim:
    """The stretch of a dimension from `start` up to `stop`.

    Raises:
        ClashError: it begins or ends inside a block of which it takes more than one.
    """
    dim = resolve(dim)
    if (start, stop) == (0, size_of(dim)):
        return dim
    dim = plain(dim)
    factor, rest = dim[0], dim[1:]
    length = size_of(rest)
    if length > 1:
        if start % length == 0 and stop % length == 0:
            return cut((factor,), start // length, stop // length) + rest
        if start // length == (stop - 1) // length:
            cut((factor,), start // length, start // length + 1)
            return cut(rest, start % length, (stop - 1) % length + 1)
        raise ClashError("a stretch across blocks")
    if isinstance(factor, Atom):
        variable = factor.variable
        pieces = [fresh(n, variable.is_fixed) for n in (start, stop - start, variable.size - stop) if n]
        bind(variable, (Sum(tuple(pieces)),))
        exponent = factor.exponent
        return mapped(pieces[1 if start else 0], lambda _: exponent)
    assert isinstance(factor, Sum)
    out, at = [], 0
    for part in factor.parts:
        size = size_of(part)
        low, high = max(start - at, 0), min(stop - at, size)
        if low < high:
            out.append(cut(part, low, high))
        at += size
    return out[0] if len(out) == 1 else (Sum(tuple(out)),)


def unify(x: Dim, y: Dim, depth: int = 0) -> None:
    """Make two types one.

    Raises:
        ClashError: they are of different lengths, or their factors do not fit.
    """
    if depth > DEEPEST:
        raise ClashError("too deep")
    if size_of(x) != size_of(y):
        raise ClashError("lengths differ")
    left, right = list(plain(x)), list(plain(y))
    while left and right:
        # What came before may have refined them.
        fs, gs = plain((left.pop(),)), plain((right.pop(),))
        if len(fs) != 1 or len(gs) != 1:
            left += fs
            right += gs
            continue
        f, g = fs[0], gs[0]
        m, n = size_of(fs), size_of(gs)
        if m == n:
            _unify_factors(f, g, depth)
        elif m % n == 0:
            outer, inner = _halves(f, n)
            left += outer + inner
            right.append(g)
        elif n % m == 0:
            outer, inner = _halves(g, m)
            right += outer + inner
            left.append(f)
        else:
            raise ClashError("factors do not fit")


def _unify_factors(f: Factor, g: Factor, depth: int) -> None:
    if isinstance(f, Atom) and isinstance(g, Atom):
        if f.variable is not g.variable:
            f.variable.is_fixed = g.variable.is_fixed = f.variable.is_fixed or g.variable.is_fixed
            g.variable.link = f.variable
    elif isinstance(f, Atom):
        bind(f.variable, (g,))
    elif isinstance(g, Atom):
        bind(g.variable, (f,))
    else:
        assert isinstance(f, Sum)
        assert isinstance(g, Sum)
        ends = [set(accumulate(map(size_of, s.parts))) for s in (f, g)]
        marks = sorted(ends[0] | ends[1])
        for start, stop in zip([0, *marks[:-1]], marks, strict=True):
            unify(cut((f,), start, stop), cut((g,), start, stop), depth + 1)


def merged(dims: Sequence[Dim], function: Callable[[list[Exponent]], Exponent]) -> Dim:
    """Equal types as one, with the exponents that `function` makes of theirs.

    Raises:
        ClashError: the types are not the same.
    """
    out: list[Factor] = []
    for factors in zip_longest(*map(plain, dims)):
        atoms_here = [f for f in factors if isinstance(f, Atom)]
        sums = [f for f in factors if isinstance(f, Sum)]
        if len(atoms_here) == len(factors) and len({atom.variable for atom in atoms_here}) == 1:
            out.append(Atom(atoms_here[0].variable, function([atom.exponent for atom in atoms_here])))
        elif len(sums) == len(factors) and len({len(s.parts) for s in sums}) == 1:
            parts = zip(*(s.parts for s in sums), strict=True)
            out.append(Sum(tuple(merged(list(part), function) for part in parts), sums[0].tag))
        else:
            raise ClashError("not the same type")
    return tuple(out)


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
