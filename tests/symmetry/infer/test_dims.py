"""Types of dimensions keep every coordinate where it is, whatever they are cut into or made equal to.

A coordinate's address is the position in every atom that it lies in; all laws are stated by addresses.
"""

import math
from itertools import product
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fusionlab.symmetry.infer.dims import (
    Atom,
    Case,
    ClashError,
    Dim,
    Sum,
    Variable,
    atoms,
    chosen,
    equal_types,
    freeze,
    fresh,
    mapped,
    parity,
    plus,
    resolve,
    size_of,
    total,
)
from fusionlab.symmetry.infer.unify import bind, chop, cut, merged, plain, unify
from tests.symmetry.models import laws

# A dimension to be made: the sizes of a product's atoms, and lists of segments.
Form = tuple[Any, ...]
leaf = st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=3).map(tuple)
forms: st.SearchStrategy[Form] = st.recursive(
    leaf,
    lambda inner: st.lists(
        st.one_of(st.sampled_from([2, 3, 4, 6]), st.lists(inner, min_size=2, max_size=3)), min_size=1, max_size=3
    ).map(tuple),
    max_leaves=5,
).filter(lambda form: size(form) <= 72)


def size(form: Form) -> int:
    return math.prod(sum(map(size, one)) if isinstance(one, list) else one for one in form)


def made(form: Form) -> Dim:
    """A type, each of whose atoms has a power of its own."""
    count = iter(range(100))

    def make(part: Form) -> Dim:
        return tuple(
            Sum(tuple(map(make, one))) if isinstance(one, list) else Atom(Variable(one), {("w", 0, next(count)): 1})
            for one in part
        )

    return make(form)


def coordinates(dim: Dim) -> list[tuple[tuple[int, int, Any], ...]]:
    """By coordinate, the atoms that it lies in, outermost first: which, the position in it, the power."""
    out: list[tuple[tuple[int, int, Any], ...]] = [()]
    for factor in resolve(dim):
        if isinstance(factor, Atom):
            power = frozenset(factor.exponent.items())
            here = [((id(factor.variable), i, power),) for i in range(factor.variable.size)]
        else:
            assert isinstance(factor, Sum)
            here = [address for part in factor.parts for address in coordinates(part)]
        out = [outer + inner for outer, inner in product(out, here)]
    return out


def addresses(dim: Dim) -> list[tuple[tuple[int, int], ...]]:
    """By coordinate, atoms and positions in them, outermost first."""
    return [tuple((atom, i) for atom, i, _ in found) for found in coordinates(dim)]


def powers(dim: Dim) -> list[tuple[Any, ...]]:
    """By coordinate, the powers of the atoms that it lies in."""
    return [tuple(power for _, _, power in found) for found in coordinates(dim)]


def has_cases(dim: Dim) -> bool:
    return any(isinstance(f, Case) or (isinstance(f, Sum) and any(map(has_cases, f.parts))) for f in resolve(dim))


@laws
@given(form=forms)
def test_resolving_keeps_coordinates_and_is_final(form: Form) -> None:
    dim = made(form)
    once = resolve(dim)
    assert size_of(dim) == size_of(once) == size(form) == len(set(addresses(dim)))
    assert equal_types(resolve(once), once)


@laws
@given(form=forms, data=st.data())
def test_a_dimension_chopped_is_the_product_of_its_factors(form: Form, data: st.DataObject) -> None:
    dim = made(form)
    inner = data.draw(st.sampled_from([n for n in range(1, size(form) + 1) if size(form) % n == 0]))
    before = {frozenset(atom.exponent.items()) for atom in atoms(dim)}
    try:
        first, second = chop(dim, inner)
    except ClashError:
        assume(False)
    assert (size_of(first), size_of(second)) == (size(form) // inner, inner)
    assume(not has_cases(first) and not has_cases(second))
    assert addresses(dim) == [a + b for a, b in product(addresses(first), addresses(second))]
    assert powers(dim) == [a + b for a, b in product(powers(first), powers(second))]
    assert {frozenset(atom.exponent.items()) for atom in atoms(dim)} == before


@laws
@given(sizes=st.lists(st.sampled_from([2, 3, 4, 5]), min_size=1, max_size=4))
def test_a_product_of_atoms_is_chopped_wherever_it_divides(sizes: list[int]) -> None:
    """At every end of a factor, and inside of one at each of its divisors."""
    for at in range(len(sizes)):
        inside = math.prod(sizes[at + 1 :])
        for divisor in (n for n in range(1, sizes[at] + 1) if sizes[at] % n == 0):
            first, second = chop(dim := made(tuple(sizes)), inside * divisor)
            assert size_of(second) == inside * divisor
            assert addresses(dim) == [a + b for a, b in product(addresses(first), addresses(second))]


@laws
@given(form=forms, data=st.data())
def test_a_stretch_holds_the_coordinates_from_its_start_to_its_end(form: Form, data: st.DataObject) -> None:
    """All but what the whole stretch has in common: one block's coordinates are those inside of it."""
    dim = made(form)
    start = data.draw(st.integers(0, size(form) - 1))
    stop = data.draw(st.integers(start + 1, size(form)))
    try:
        stretch = cut(dim, start, stop)
        again = cut(dim, start, stop)
    except ClashError:
        assume(False)
    assert size_of(stretch) == stop - start
    assert equal_types(resolve(stretch), resolve(again))
    for found, whole in zip(addresses(stretch), addresses(dim)[start:stop], strict=True):
        assert whole[len(whole) - len(found) :] == found
    for found, whole in zip(powers(stretch), powers(dim)[start:stop], strict=True):
        assert whole[len(whole) - len(found) :] == found


@laws
@given(first=forms, data=st.data())
def test_unified_types_have_the_same_coordinates(first: Form, data: st.DataObject) -> None:
    same = forms.filter(lambda form: size(form) == size(first))
    plainly = st.sampled_from([f for f in factorizations(size(first)) if f])
    second = data.draw(st.one_of(plainly, same))
    x, y = made(first), made(second)
    try:
        unify(x, y)
    except ClashError:
        with pytest.raises(ClashError):
            unify(made(second), made(first))
        assume(False)
    assume(not has_cases(x) and not has_cases(y))
    assert addresses(x) == addresses(y)
    if not any(isinstance(one, list) for one in (*first, *second)):
        assert len(set(addresses(x))) == size(first)
    try:
        both = merged([x, y], total)
    except ClashError:
        # Segments that are a product, as 2 x 3 and 3 are 3 x 3, have two forms: see below.
        assert any(isinstance(f, Sum) for dim in (x, y) for f in resolve(dim))
        assert not equal_types(*(mapped(plain(dim), lambda exponent: {}) for dim in (x, y)))
        return
    assert addresses(both) == addresses(x)
    sums = [
        tuple(frozenset(plus(dict(a), dict(b)).items()) for a, b in zip(m, n, strict=True))
        for m, n in zip(powers(x), powers(y), strict=True)
    ]
    assert powers(both) == sums


def test_segments_that_are_one_another_merge_with_their_product() -> None:
    """Two segments added to something viewed as two blocks: both are one space, twice."""
    segments, blocks = made(([(2,), (2,)],)), made((2, 2))
    unify(segments, blocks)
    assert addresses(segments) == addresses(blocks)
    merged([segments, blocks], total)


def factorizations(number: int) -> list[Form]:
    """Every ordered product of factors above one."""
    if number == 1:
        return [()]
    return [(n, *rest) for n in range(2, number + 1) if number % n == 0 for rest in factorizations(number // n)]


@laws
@given(first=forms, second=forms)
def test_types_of_other_lengths_clash(first: Form, second: Form) -> None:
    assume(size(first) != size(second))
    with pytest.raises(ClashError):
        unify(made(first), made(second))


@laws
@given(form=forms, is_second=st.booleans())
def test_what_is_fixed_stays_fixed_in_whatever_it_becomes(form: Form, is_second: bool) -> None:
    x, y = fresh(size(form), is_fixed=True), made(form)
    unify(*((y, x) if is_second else (x, y)))
    assert all(atom.variable.is_fixed for atom in atoms(y))
    z = made(form)
    unify(*((y, z) if is_second else (z, y)))
    assert all(atom.variable.is_fixed for atom in atoms(z))
    assert not any(atom.variable.is_fixed for atom in atoms(made(form)))


@pytest.mark.parametrize("is_second", [False, True])
def test_equal_atoms_share_what_is_learned_of_either_later(is_second: bool) -> None:
    x, y = fresh(6), fresh(6)
    unify(x, y)
    freeze(chop(y if is_second else x, 3)[1])
    for dim in (x, y):
        assert [(atom.variable.size, atom.variable.is_fixed) for atom in atoms(dim)] == [(2, False), (3, True)]


@pytest.mark.parametrize(
    ("first", "second"), [((2, 3), (3, 2)), (([(2,), (4,)],), (2, 3)), (([(2,), (3,)], 2), ([(3,), (7,)],))]
)
def test_products_that_have_no_common_refinement_clash(first: Form, second: Form) -> None:
    for x, y in ((first, second), (second, first)):
        with pytest.raises(ClashError):
            unify(made(x), made(y))


def test_segments_that_end_in_different_places_are_cut_at_both_ends() -> None:
    x, y = made(([(2,), (4,)],)), made(([(3,), (3,)],))
    unify(x, y)
    (found,) = resolve(x)
    assert isinstance(found, Sum)
    assert list(map(size_of, found.parts)) == [2, 1, 3]
    assert addresses(x) == addresses(y)


def test_a_type_is_not_inside_itself() -> None:
    (atom,) = dim = made((6,))
    with pytest.raises(ClashError):
        bind(atom.variable, (Sum((dim, fresh(2))),))


def test_a_stretch_across_blocks_clashes() -> None:
    dim = made((2, 3))
    assert len(addresses(cut(dim, 1, 3))) == 2
    with pytest.raises(ClashError):
        cut(dim, 2, 4)
    with pytest.raises(ClashError):
        cut(made((2, 6)), 3, 9)


def test_lengths_that_do_not_divide_clash() -> None:
    for form, inner in (((4,), 3), ((2, 3), 2), ((3,), 6)):
        with pytest.raises(ClashError):
            chop(made(form), inner)


def test_what_depends_on_a_dimension_is_chosen_by_it() -> None:
    """Queries, keys and values one after the other, viewed as (3, features): a place in the first is one of them."""
    query, key, value = made((4,)), made((4,)), made((4,))
    dims = list(chop((Sum((query, key, value)),), 4))
    assert list(map(size_of, dims)) == [3, 4]
    for place, part in enumerate((query, key, value)):
        assert addresses(chosen(dims, 0, place, place + 1)[1]) == addresses(part)
    # Of two of them each is chosen again, by its place among the two.
    two = chosen(dims, 0, 1, 3)
    assert [addresses(chosen(two, 0, place, place + 1)[1]) for place in (0, 1)] == [addresses(key), addresses(value)]
    # Where nobody chooses, they are one.
    assert addresses(plain(dims[1])) == addresses(query) == addresses(key) == addresses(value)


def test_merging_types_that_differ_clashes() -> None:
    with pytest.raises(ClashError):
        merged([made((6,)), made((6,))], total)
    with pytest.raises(ClashError):
        merged([made((6,)), made((2, 3))], total)


def test_powers_add_and_vanish() -> None:
    a, b = ("w", 0, 0), ("w", 1, 1)
    assert plus({a: 1}, {a: 1, b: 2}, -1) == {b: -2}
    assert total([{a: 1}, {b: 1}, {a: 2}]) == {a: 3, b: 1}
    assert total([]) == {}
    assert parity(parity(a)) == a != parity(a)
    (atom,) = mapped((Atom(Variable(3), {a: 1}),), lambda exponent: plus(exponent, exponent))
    assert isinstance(atom, Atom)
    assert atom.exponent == {a: 2}
