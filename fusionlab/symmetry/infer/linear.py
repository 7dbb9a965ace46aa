"""Linear systems over the rational numbers and modulo two, sparse, by row reduction."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TypeVar

Unknown = TypeVar("Unknown", bound=Hashable)


def null_space(
    equations: Iterable[Mapping[Unknown, int | Fraction]], unknowns: Sequence[Unknown]
) -> list[dict[Unknown, Fraction]]:
    """A basis of the solutions of a homogeneous system over the rationals.

    Args:
        equations: each the coefficients of a sum that vanishes; those of `unknowns` only.
        unknowns: all there are.

    Returns:
        Solutions as their entries that are not zero.
    """
    pivots: dict[Unknown, dict[Unknown, Fraction]] = {}
    for equation in equations:
        row = {key: Fraction(value) for key, value in equation.items() if value}
        for pivot in [key for key in row if key in pivots]:
            if pivot in row:
                row = _plus(row, pivots[pivot], -row[pivot])
        if not row:
            continue
        pivot = next(iter(row))
        row = {key: value / row[pivot] for key, value in row.items()}
        for other, base in pivots.items():
            if pivot in base:
                pivots[other] = _plus(base, row, -base[pivot])
        pivots[pivot] = row
    free = [unknown for unknown in unknowns if unknown not in pivots]
    return [{f: Fraction(1)} | {pivot: -base[f] for pivot, base in pivots.items() if base.get(f)} for f in free]


def null_space_mod_2(
    equations: Iterable[Mapping[Unknown, int]], unknowns: Sequence[Unknown]
) -> list[frozenset[Unknown]]:
    """A basis of the solutions of a homogeneous system modulo two, each as the set of its ones."""
    # Dictionaries for sets: the solutions follow the order of the equations, whatever the hashes are.
    pivots: dict[Unknown, dict[Unknown, None]] = {}
    for equation in equations:
        row = {key: None for key, value in equation.items() if value % 2}
        for pivot in [key for key in row if key in pivots]:
            if pivot in row:
                row = _either(row, pivots[pivot])
        if row:
            pivot = next(iter(row))
            for other, base in pivots.items():
                if pivot in base:
                    pivots[other] = _either(base, row)
            pivots[pivot] = row
    free = [unknown for unknown in unknowns if unknown not in pivots]
    return [frozenset({f} | {pivot for pivot, base in pivots.items() if f in base}) for f in free]


def _either(x: dict[Unknown, None], y: dict[Unknown, None]) -> dict[Unknown, None]:
    return {key: None for key in (*x, *y) if (key in x) != (key in y)}


def _plus(x: Mapping[Unknown, Fraction], y: Mapping[Unknown, Fraction], times: Fraction) -> dict[Unknown, Fraction]:
    out = dict(x)
    for key, value in y.items():
        found = out.get(key, Fraction(0)) + times * value
        if found:
            out[key] = found
        else:
            out.pop(key, None)
    return out
