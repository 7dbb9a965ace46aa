"""Types made one: what operations do when dimensions meet, are divided and are cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, zip_longest

from fusionlab.symmetry.infer.dims import (
    Atom,
    Case,
    ClashError,
    Dim,
    Exponent,
    Factor,
    Sum,
    Variable,
    atoms,
    freeze,
    fresh,
    mapped,
    resolve,
    size_of,
)

# Types inside types: deeper ones are taken for a contradiction.
DEEPEST = 60


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
    types = list(map(plain, dims))
    if len(set(map(len, types))) > 1:
        types = list(map(_spread, types))
    out: list[Factor] = []
    for factors in zip_longest(*types):
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


def _spread(dim: Dim) -> Dim:
    """A type whose first segments hold what lies inside of them all: blocks of (a + b) x c are a x c and then b x c."""
    first = dim[0] if dim else None
    if isinstance(first, Sum) and len(dim) > 1:
        return (Sum(tuple(_spread(plain(part) + dim[1:]) for part in first.parts), first.tag),)
    return dim
