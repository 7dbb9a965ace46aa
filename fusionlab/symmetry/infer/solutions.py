"""Candidates for what may act along one space: powers and parities that the equations of a reading leave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from math import gcd, lcm

from fusionlab.symmetry.infer.dims import Exponent, Stretch
from fusionlab.symmetry.infer.linear import null_space, null_space_mod_2

Solution = dict[Stretch, Fraction]


def within(equations: Iterable[Exponent], stretches: Iterable[Stretch]) -> list[dict[Stretch, int]]:
    """Equations cut down to some stretches; other spaces have factors of their own."""
    known = set(stretches)
    cut = ({key: value for key, value in equation.items() if key in known} for equation in equations)
    # In an order that no hash decides: what is found first is what is tried.
    return [dict(found) for found in sorted({tuple(sorted(equation.items())) for equation in cut if equation})]


def read_twice(equations: Iterable[Exponent]) -> set[Stretch]:
    """Stretches that meet only themselves, as that of ``W.T @ W``: rotations may act on one alone."""
    counts: dict[Stretch, set[int]] = {}
    for equation in equations:
        for stretch, times in equation.items():
            counts.setdefault(stretch, set()).add(times % 2)
    return {stretch for stretch, odd in counts.items() if odd == {0}}


def equations(solutions: Sequence[Solution], stretches: Sequence[Stretch]) -> list[Solution]:
    """Equations whose solutions are the span of `solutions`."""
    transposed = [{s: v[s] for s in stretches if v.get(s)} for v in solutions]
    return null_space(transposed, stretches)


def ones(solution: Solution) -> dict[Stretch, int] | None:
    """A solution divided by its first entry, if all others are that or its opposite."""
    first = solution[min(solution)]
    out = {key: value / first for key, value in solution.items()}
    return {key: int(value) for key, value in out.items()} if set(out.values()) <= {1, -1} else None


def integers(solution: Solution) -> dict[Stretch, int]:
    """A solution as powers of a factor: its multiple in integers without common divisors, the first one positive."""
    first = solution[min(solution)]
    times = lcm(*((value / first).denominator for value in solution.values()))
    whole = {key: int(value / first * times) for key, value in solution.items()}
    return {key: value // gcd(*whole.values()) for key, value in whole.items()}


def differences(found: Sequence[Mapping[Stretch, int]]) -> Iterator[dict[Stretch, int]]:
    """Differences of two solutions, by 1 and -1: where powers may do more than one thing any basis mixes them."""
    for one, other in combinations(found, 2):
        for sign in (-1, 1):
            rest = {key: one.get(key, 0) + sign * other.get(key, 0) for key in {**one, **other}}
            if rest := {key: value for key, value in rest.items() if value}:
                yield from filter(None, [ones({key: Fraction(value) for key, value in rest.items()})])


def is_independent(powers: Mapping[Stretch, int], taken: Sequence[Mapping[Stretch, int]], modulo_two: bool) -> bool:
    """True if powers are no combination of others: over the rationals, or modulo two.

    A set of factors whose powers are such a combination says nothing new; nor do signs, nor the sign of factors of
    either sign, where they are one modulo two.
    """
    rows: dict[Stretch, dict[int, int]] = {}
    for number, one in enumerate((*taken, powers)):
        for stretch, power in one.items():
            rows.setdefault(stretch, {})[number] = power
    unknowns = range(len(taken) + 1)
    solved = (null_space_mod_2 if modulo_two else null_space)(rows.values(), unknowns)
    return not any(len(taken) in solution for solution in solved)


def combined(linear: list[dict[Stretch, int]]) -> Iterator[dict[Stretch, int]]:
    """Each solution, then sums of those that share no stretch."""
    yield from linear
    for count in range(2, min(len(linear), 3) + 1):
        for chosen in combinations(linear, count):
            if sum(map(len, chosen)) == len(set().union(*chosen)):
                yield {key: value for one in chosen for key, value in one.items()}


def apart(solutions: Sequence[Solution]) -> Iterator[dict[Stretch, int]]:
    """Powers to try one after the other for sets of factors, from the basis of a null space.

    Solutions of a reduced basis that share no stretch with any other are the only ones on theirs, whatever the basis
    was; of those that share some, and their differences, which are taken depends on the order, which is that of the
    basis, those on few stretches first.
    """
    parts: list[list[Solution]] = []
    for solution in solutions:
        meeting = [part for part in parts if any(not solution.keys().isdisjoint(other) for other in part)]
        parts = [part for part in parts if part not in meeting]
        parts.append([one for part in meeting for one in part] + [solution])
    for part in parts:
        found = list(map(integers, part))
        yield from sorted([*found, *differences(found)], key=len)
