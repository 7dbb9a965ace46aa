"""Sizes of spaces from the shapes of parameters: equations between products and sums, solved one unknown at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fusionlab.symmetry.axes import Across, Along, Axis, Concat, Fixed, Per, Scaled
from fusionlab.symmetry.blueprint import SymmetryError

# A space, or the length of a stretch without one in the small model; and the real place that it is in.
Unknown = tuple[str | int, tuple[int, ...]]
# Products of unknowns, each with how often it is counted.
Polynomial = dict[tuple[Unknown, ...], int]


def length(axis: Axis, name: Callable[[str], Unknown], fixed: Callable[[int], Unknown]) -> Polynomial | None:
    """The length of an axis as a polynomial in the sizes of its spaces; None where it is open.

    Args:
        axis: of the small model.
        name: the unknown that a space's size is.
        fixed: the unknown that the length of a stretch without a space is.
    """
    match axis:
        case Fixed():
            found: Polynomial | None = None if axis.size is None else {() if axis.size == 1 else (fixed(axis.size),): 1}
        case Along():
            found = {(name(axis.space),): 1}
        case Per():
            inner = length(axis.inner, name, fixed)
            found = inner and {_product((name(axis.space), *factors)): count for factors, count in inner.items()}
        case Across() | Scaled():
            return length(axis.inner, name, fixed)
        case Concat():
            found = {}
            for part in axis.parts:
                of_part = length(part, name, fixed)
                if of_part is None:
                    return None
                for factors, count in of_part.items():
                    found[factors] = found.get(factors, 0) + count
    return found


def _product(factors: tuple[Unknown, ...]) -> tuple[Unknown, ...]:
    return tuple(sorted(factors, key=repr))


@dataclass
class Equations:
    """Lengths that are known, and what follows.

    Attributes:
        values: unknowns that are found.
    """

    values: dict[Unknown, int] = field(default_factory=dict)
    _equations: list[tuple[Polynomial, int, str]] = field(default_factory=list)
    _of: dict[Unknown, list[int]] = field(default_factory=dict)

    def add(self, polynomial: Polynomial, value: int, what: str) -> None:
        """Say that a length is `value`; `what` it is of, for messages."""
        number = len(self._equations)
        self._equations.append((polynomial, value, what))
        for unknown in {factor for factors in polynomial for factor in factors}:
            self._of.setdefault(unknown, []).append(number)

    def propagate(self) -> None:
        """Find all that follows.

        Raises:
            SymmetryError: the lengths contradict each other.
        """
        self._settle(range(len(self._equations)))

    def suppose(self, unknown: Unknown, value: int) -> bool:
        """Take a value for an unknown, with all that follows; true unless it contradicts a length and is not taken."""
        before = dict(self.values)
        try:
            self.values[unknown] = value
            self._settle(self._of.get(unknown, ()))
        except SymmetryError:
            self.values = before
            return False
        return True

    def consistent(self, unknown: Unknown, values: Sequence[int]) -> list[int]:
        """The values for an unknown that contradict no length."""
        found, before = [], dict(self.values)
        for value in values:
            if self.suppose(unknown, value):
                found.append(value)
            self.values = dict(before)
        return found

    def _settle(self, numbers: Sequence[int] | range) -> None:
        waiting = list(numbers)
        while waiting:
            polynomial, value, what = self._equations[number := waiting.pop()]
            found = _solved(polynomial, value, self.values, what)
            if found is not None:
                self.values[found[0]] = found[1]
                waiting += [other for other in self._of[found[0]] if other != number]


def _solved(polynomial: Polynomial, value: int, values: Mapping[Unknown, int], what: str) -> tuple[Unknown, int] | None:
    """The last unknown of an equation and its value; None where there is none, or more than one."""
    open_: set[Unknown] = {factor for factors in polynomial for factor in factors if factor not in values}
    if len(open_) > 1:
        return None
    rest, slopes = value, dict[int, int]()
    for factors, count in polynomial.items():
        known = count * math.prod(values[factor] for factor in factors if factor in values)
        power = sum(factor not in values for factor in factors)
        if power == 0:
            rest -= known
        else:
            slopes[power] = slopes.get(power, 0) + known
    if not open_:
        if rest:
            raise SymmetryError(f"the sizes found elsewhere do not give {what} its length {value}")
        return None
    if set(slopes) != {1}:
        return None
    size, left = divmod(rest, slopes[1])
    if left or size < 1:
        raise SymmetryError(f"no size gives {what} its length {value}")
    return open_.pop(), size
