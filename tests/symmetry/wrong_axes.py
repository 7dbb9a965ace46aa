"""Axes that are wrong in one stretch: what a blueprint must not contain without a test noticing."""

from collections.abc import Iterator, Mapping

from fusionlab.symmetry import Space
from fusionlab.symmetry.axes import Along, Axis, Concat, Fixed, Per, Scaled, scaled, sides_of
from fusionlab.symmetry.groups import Invertible, Orthogonal

Sides = frozenset[tuple[str, bool]]


def wrong_axes(axis: Axis, spaces: Mapping[str, Space]) -> Iterator[tuple[Axis, Sides]]:
    """Every axis that differs from `axis` in one stretch: left out, dualised, or its blocks not permuted.

    Yields:
        The axis, and what the stretch that is wrong runs along: spaces, and whether by their dual.
    """
    sides = frozenset(sides_of(axis))
    match axis:
        case Along():
            yield Fixed(axis.size), sides
            group = spaces[axis.space].group
            if isinstance(group, Invertible) and not isinstance(group, Orthogonal):
                yield axis.dual(), sides
        case Per():
            yield Fixed(axis.size), sides
            for inner, stretch in wrong_axes(axis.inner, spaces):
                yield Per(axis.space, axis.count, inner), stretch
        case Scaled():
            yield axis.inner, frozenset([(axis.space, axis.power < 0)])
            yield scaled(axis.space, -axis.power, axis.inner), frozenset([(axis.space, axis.power < 0)])
            for inner, stretch in wrong_axes(axis.inner, spaces):
                yield scaled(axis.space, axis.power, inner), stretch
        case Concat():
            for position, part in enumerate(axis.parts):
                for wrong, stretch in wrong_axes(part, spaces):
                    yield Concat(*axis.parts[:position], wrong, *axis.parts[position + 1 :]), stretch
