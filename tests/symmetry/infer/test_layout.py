"""Axes that follow from types."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusionlab.symmetry.axes import Across, Along, Concat, Fixed, Per, Scaled, spaces_of
from fusionlab.symmetry.groups import Group, Invertible, Orthogonal, Rotary, Scale, Signs
from fusionlab.symmetry.infer.dims import Atom, Dim, Exponent, Sum, Variable, atoms, parity, size_of
from fusionlab.symmetry.infer.layout import Acting, InexpressibleError, Layout, leading_atoms
from tests.symmetry.infer.test_dims import Form, forms, made
from tests.symmetry.models import laws

HEADS, INNER, UNITS = Variable(3), Variable(4), Variable(5)
S, T = ("w", 0, 0), ("w", 0, 1)


def atom(variable: Variable, *, power: Exponent | None = None) -> Atom:
    return Atom(variable, {S: 1} if power is None else power)


def acting(group: Group, variable: Variable = INNER, power: int = 1) -> dict[Variable, tuple[Acting, ...]]:
    return {variable: (Acting("basis", group, {S: power}),)}


NAMED = {HEADS: "heads", UNITS: "units"}


@laws
@given(form=forms, data=st.data())
def test_an_axis_is_as_long_as_its_type_and_names_what_is_named(form: Form, data: st.DataObject) -> None:
    dim = made(form)
    variables = list(dict.fromkeys(one.variable for one in atoms(dim)))
    named = data.draw(st.lists(st.sampled_from(variables), unique=True))
    axis = Layout({variable: str(id(variable)) for variable in named}, {}).axis(dim)
    assert axis.size == size_of(dim)
    assert set(spaces_of(axis)) == {str(id(variable)) for variable in named}


def test_a_product_is_blocks_and_segments_are_segments() -> None:
    layout = Layout(NAMED, acting(Invertible(4)))
    assert layout.axis(()) == Fixed(1)
    assert layout.axis((atom(UNITS),)) == Along("units", 5)
    assert layout.axis((atom(HEADS), atom(INNER))) == Per("heads", 3, Along("basis", 4))
    assert layout.axis((atom(HEADS), atom(Variable(7)))) == Per("heads", 3, Fixed(7))
    parts: tuple[Dim, ...] = ((atom(Variable(2)),), (atom(Variable(6)),), (atom(HEADS), atom(INNER)), (atom(UNITS),))
    assert layout.axis((Sum(parts),)) == Concat(Fixed(8), Per("heads", 3, Along("basis", 4)), Along("units", 5))
    # Blocks that nothing permutes, one after the other.
    assert layout.axis((atom(Variable(2)), atom(INNER))) == Concat(Along("basis", 4), Along("basis", 4))


def test_powers_say_what_is_dual() -> None:
    for power, is_dual in ((1, False), (-1, True)):
        for group in (Invertible(4), Scale(4)):
            layout = Layout({}, acting(group, power=power))
            assert layout.axis((atom(INNER),)) == Along("basis", 4, is_dual)
            assert layout.axis((atom(INNER, power={S: -1}),)) == Along("basis", 4, not is_dual)
    layout = Layout({}, {INNER: (Acting("basis", Invertible(4), {S: 1, T: -1}),)})
    assert layout.axis((atom(INNER, power={S: 1, T: 1}),)) == Fixed(4)
    with pytest.raises(InexpressibleError, match="power"):
        layout.axis((atom(INNER, power={S: 2}),))


def test_of_rotations_and_permutations_what_reads_is_dual() -> None:
    read = Layout(NAMED, acting(Orthogonal(4)), readers=frozenset({S}))
    assert read.axis((atom(INNER),)) == Along("basis", 4, is_dual=True)
    assert read.axis((atom(UNITS),)) == Along("units", 5, is_dual=True)
    assert Layout(NAMED, acting(Orthogonal(4))).axis((atom(INNER),)) == Along("basis", 4)
    # Twice is nothing, and an output's powers modulo two go by names of their own.
    assert Layout({}, acting(Orthogonal(4))).axis((atom(INNER, power={S: 2}),)) == Fixed(4)
    assert Layout({}, acting(Orthogonal(4))).axis((atom(INNER, power={S: 2, parity(S): 1}),)) == Along("basis", 4)


def test_signs_are_powers_modulo_two() -> None:
    layout = Layout(NAMED, acting(Signs(1), UNITS), readers=frozenset({T}))
    assert layout.axis((atom(UNITS),)) == Per("units", 5, Along("basis", 1))
    assert layout.axis((atom(UNITS, power={S: -1}),)) == Per("units", 5, Along("basis", 1))
    assert layout.axis((atom(UNITS, power={S: 2}),)) == Along("units", 5)
    both = Layout(NAMED, {UNITS: (Acting("basis", Signs(1), {S: 1, T: 1}),)}, readers=frozenset({T}))
    assert both.axis((atom(UNITS, power={T: 1}),)) == Per("units", 5, Along("basis", 1, is_dual=True))


def test_factors_act_on_one_stretch_together_and_other_groups_do_not() -> None:
    """Gains have factors where what is normed has signs; what reads them takes both."""
    two = Acting("factors", Scale(1), {S: 1}), Acting("signs", Signs(1), {T: 1})
    layout = Layout(NAMED, {UNITS: two})
    assert layout.axis((atom(UNITS),)) == Per("units", 5, Along("factors", 1))
    assert layout.axis((atom(UNITS, power={T: 1}),)) == Per("units", 5, Along("signs", 1))
    both = layout.axis((atom(UNITS, power={S: -2, T: 1}),))
    assert both == Per("units", 5, Scaled("factors", -2, Along("signs", 1)))
    assert layout.axis((atom(UNITS, power={S: 2}), atom(Variable(2)))) == Per(
        "units", 5, Concat(*[Scaled("factors", 2, Fixed(1))] * 2)
    )
    around = Layout(NAMED, {UNITS: two[:1], **acting(Invertible(4))})
    assert around.axis((atom(UNITS), atom(INNER))) == Per("units", 5, Scaled("factors", 1, Along("basis", 4)))
    whole = Layout({}, {INNER: (Acting("one", Invertible(4), {S: 1}), Acting("other", Scale(4), {T: 1}))})
    with pytest.raises(InexpressibleError, match="two groups"):
        whole.axis((atom(INNER, power={S: 1, T: 1}),))


def test_rotary_planes_are_halves_or_neighbours() -> None:
    two = Variable(2, is_fixed=True)
    halves: Dim = (Sum(((atom(INNER),), (atom(INNER),))),)
    assert Layout(NAMED, acting(Rotary(8))).axis(halves) == Along("basis", 8)
    assert Layout(NAMED, acting(Rotary(8))).axis((atom(HEADS), *halves)) == Per("heads", 3, Along("basis", 8))
    neighbours: Dim = (atom(INNER), Atom(two))
    assert Layout(NAMED, acting(Rotary(8, interleaved=True))).axis(neighbours) == Along("basis", 8)
    with pytest.raises(InexpressibleError):
        Layout(NAMED, acting(Rotary(8))).axis(neighbours)
    unequal: Dim = (Sum(((atom(INNER),), (atom(INNER, power={S: -1}),))),)
    with pytest.raises(InexpressibleError):
        Layout(NAMED, acting(Rotary(8))).axis(unequal)


def test_a_factor_lies_inside_of_its_unit() -> None:
    layout = Layout(NAMED, acting(Scale(1), UNITS, power=-1))
    assert layout.axis((atom(UNITS),)) == Per("units", 5, Along("basis", 1, is_dual=True))
    factor = Along("basis", 1, is_dual=True)
    assert layout.axis((atom(UNITS), atom(Variable(2)))) == Per("units", 5, Concat(factor, factor))
    inside = layout.axis((atom(UNITS), atom(HEADS)))
    assert inside == Per("units", 5, Scaled("basis", -1, Along("heads", 3)))


def test_a_basis_around_another_space_has_no_axis() -> None:
    with pytest.raises(InexpressibleError, match="around another"):
        Layout(NAMED, acting(Invertible(4))).axis((atom(INNER), atom(HEADS)))


def test_copies_along_another_dimension_are_across() -> None:
    layout = Layout(NAMED, acting(Invertible(4)), index={"basis": (HEADS,)})
    dims: list[Dim] = [(atom(HEADS), atom(UNITS)), (atom(Variable(2)),), (atom(INNER),)]
    assert layout.axes(dims) == (
        Per("heads", 3, Along("units", 5)),
        Fixed(2),
        Across((("heads", 3),), 0, Along("basis", 4)),
    )
    # Where they are its own there is no need.
    assert layout.axes([(atom(HEADS), atom(INNER)), (atom(HEADS),)])[0] == Per("heads", 3, Along("basis", 4))
    for other in ((atom(UNITS), atom(HEADS)), (atom(UNITS),)):
        expected = (("units", 5), ("heads", 3)) if len(other) == 2 else None
        if expected is None:
            with pytest.raises(InexpressibleError, match="indexed by nothing"):
                layout.axes([other, (atom(INNER),)])
        else:
            assert layout.axes([other, (atom(INNER),)])[1] == Across(expected, 0, Along("basis", 4))


def test_copies_that_nothing_permutes_have_names_of_their_own() -> None:
    layout = Layout({}, acting(Invertible(4)), index={"basis": (HEADS,)}, numbered=frozenset({HEADS}))
    expected = Concat(*(Along(f"basis.copy{i}", 4) for i in range(3)))
    assert layout.axes([(atom(HEADS), atom(INNER))]) == (expected,)
    with pytest.raises(InexpressibleError, match="numbered"):
        layout.axes([(atom(HEADS),), (atom(INNER),)])


def test_leading_atoms_end_where_segments_begin() -> None:
    assert leading_atoms((atom(HEADS), atom(UNITS), Sum(((atom(INNER),), (atom(INNER),))), atom(INNER))) == [
        HEADS,
        UNITS,
    ]
