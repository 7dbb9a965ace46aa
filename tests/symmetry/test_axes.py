"""Axes: sizes, duals, and which spaces act on them."""

import pytest

from fusionlab.symmetry.axes import Along, Concat, Fixed, Per, Scaled, chains, powers, scaled, sides_of, spaces_of

FUSED = Concat(Per("heads", 2, Along("qk", 3)), Per("heads", 2, Along("qk", 3).dual()), Along("ffn", 4))


def test_sizes_add_up():
    """Sizes multiply over blocks and add over segments; an open length leaves the whole open."""
    assert Fixed().size is None
    assert Fixed(7).size == 7
    assert Along("a", 5).size == 5
    assert Per("heads", 3, Along("a", 5)).size == 15
    assert Per("heads", 3, Fixed()).size is None
    assert FUSED.size == 16
    assert Concat(Along("a", 5), Fixed()).size is None


def test_dual_flips_every_space_once_and_twice_is_nothing():
    assert Along("a", 5).dual() == Along("a", 5, is_dual=True)
    assert Fixed(3).dual() == Fixed(3)
    flipped = FUSED.dual()
    assert list(sides_of(flipped)) == [("qk", True), ("qk", False), ("ffn", True)]
    assert flipped.dual() == FUSED


def test_spaces_of_lists_outer_before_inner():
    assert list(spaces_of(FUSED)) == ["heads", "qk", "heads", "qk", "ffn"]
    assert list(spaces_of(Fixed(3))) == []


# What reads a gain in a stream of signs, and what reads the square of units.
BOTH = Per("stream", 5, Scaled("gain", -1, Along("signs", 1, is_dual=True)))
SQUARED = Per("units", 5, Scaled("factor", -2, Fixed(1)))


def test_factors_are_told_with_their_powers():
    assert BOTH.size == SQUARED.size == 5
    assert list(spaces_of(BOTH)) == ["stream", "gain", "signs"]
    assert list(chains(BOTH)) == [("stream", "gain", "signs")]
    assert list(sides_of(BOTH)) == [("gain", True), ("signs", True)]
    assert list(powers(BOTH)) == [{"gain": -1, "signs": -1}]
    assert list(powers(Concat(SQUARED, FUSED, Fixed(2)))) == [{"factor": -2}, {"qk": 1}, {"qk": -1}, {"ffn": 1}, {}]
    assert SQUARED.dual() == Per("units", 5, Scaled("factor", 2, Fixed(1)))
    assert BOTH.dual().dual() == BOTH


def test_a_factor_is_written_in_one_way():
    assert scaled("factor", -1, Fixed(1)) == Along("factor", 1, is_dual=True)
    assert scaled("factor", 3, Fixed(1)) == Scaled("factor", 3, Fixed(1))
    assert scaled("factor", 1, Along("qk", 4)) == Scaled("factor", 1, Along("qk", 4))
    for power, inner in ((1, Fixed(1)), (-1, Fixed(1)), (0, Along("qk", 4))):
        with pytest.raises(ValueError, match="expected another axis"):
            Scaled("factor", power, inner)
