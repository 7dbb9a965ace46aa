"""Null spaces over the rationals and modulo two: solutions, independent, and as many as there are."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fusionlab.symmetry.infer.linear import null_space, null_space_mod_2
from tests.symmetry.models import laws

UNKNOWNS = tuple("abcdef")
systems = st.lists(st.dictionaries(st.sampled_from(UNKNOWNS), st.integers(-3, 3), max_size=len(UNKNOWNS)), max_size=7)


def matrix(rows: list[dict[str, int]]) -> np.ndarray:
    return np.array([[float(row.get(u, 0)) for u in UNKNOWNS] for row in rows]).reshape(-1, len(UNKNOWNS))


def rank(rows: list[dict[str, int]]) -> int:
    """By singular values; integers this small have none between zero and 1e-3."""
    return int(np.linalg.matrix_rank(matrix(rows), tol=1e-6)) if rows else 0


@laws
@given(system=systems)
def test_null_space_over_the_rationals(system: list[dict[str, int]]) -> None:
    found = null_space(system, UNKNOWNS)
    assert len(found) == len(UNKNOWNS) - rank(system)
    assert rank(found) == len(found)
    for solution in found:
        assert 0 not in solution.values()
        for equation in system:
            assert sum(value * solution.get(u, 0) for u, value in equation.items()) == 0


@laws
@given(system=systems)
def test_null_space_modulo_two_is_every_solution(system: list[dict[str, int]]) -> None:
    found = null_space_mod_2(system, UNKNOWNS)
    spanned = set()
    for chosen in product((False, True), repeat=len(found)):
        one = frozenset[str]()
        for solution, is_in in zip(found, chosen, strict=True):
            one ^= solution if is_in else frozenset()
        spanned.add(one)
    assert len(spanned) == 2 ** len(found)
    vectors = [frozenset(u for u, bit in zip(UNKNOWNS, bits, strict=True) if bit) for bits in product((0, 1), repeat=6)]
    solving = {v for v in vectors if all(sum(row.get(u, 0) for u in v) % 2 == 0 for row in system)}
    assert spanned == solving


def test_unknowns_without_an_equation_are_free() -> None:
    assert null_space([{"a": 2, "b": -1}], ("a", "b", "c")) == [{"b": 1, "a": 0.5}, {"c": 1}] or null_space(
        [{"a": 2, "b": -1}], ("a", "b", "c")
    ) == [{"a": 1, "b": 2}, {"c": 1}]
    assert null_space([], ("a",)) == [{"a": 1}]
    assert null_space_mod_2([{"a": 2}], ("a",)) == [frozenset("a")]
