"""Spaces that are told apart by number, as one space with copies, so that a small model's stand for any number of them.

Heads that positions tell apart (ALiBi) cannot be permuted, so each has spaces of its own. Between a small model and a
real one they are described as copies along an index, which is dissolved again before anybody may act on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fusionlab.symmetry.axes import Across, Along, Axis, Concat, Fixed, Per, Scaled, spaces_of
from fusionlab.symmetry.blueprint import Blueprint, Space
from fusionlab.symmetry.groups import Permutation
from fusionlab.symmetry.infer.layout import joined
from fusionlab.symmetry.roles import Role

_COPY = re.compile(r"(?P<base>.*)\.copy(?P<number>\d+)$")
# A copy anywhere in a name: factors inside of a copy are numbered too.
_NUMBERED = re.compile(r"\.copy\d+")
INDEX = "numbered"


@dataclass(frozen=True)
class _Family:
    """Spaces that differ in their number alone: their common name, that of what counts them, and how many there are."""

    base: str
    index: str
    count: int


def numbered_spaces(blueprint: Blueprint) -> frozenset[str]:
    """The names of the spaces that are one of several numbered copies."""
    return frozenset(name for name in blueprint.spaces if _NUMBERED.search(name))


def gathered(blueprint: Blueprint) -> Blueprint:
    """The blueprint with numbered spaces as copies along an index of heads, as far as axes list one copy after another.

    The result claims a permutation of heads that is none, and must go through `dissolved` before it is used.
    """
    families = _families(blueprint)
    for axes in _every(blueprint):
        for axis in axes:
            lost = {_base(name) for name in spaces_of(_gather(axis, families)) if _COPY.match(name)}
            families = {base: family for base, family in families.items() if base not in lost}
    if not families:
        return blueprint
    return _gathered(blueprint, families)


def dissolved(blueprint: Blueprint) -> Blueprint:
    """The blueprint with each copy along an index of numbered heads as a space of its own again."""
    spaces: dict[str, Space] = {}
    for name, space in blueprint.spaces.items():
        if _is_index(name):
            continue
        counted = [position for position, index in enumerate(space.index) if _is_index(index)]
        if not counted:
            spaces[name] = space
            continue
        for number in range(space.copies[counted[0]]):
            own = f"{name}.copy{number}"
            spaces[own] = replace(space, name=own, index=(), copies=())
    named = {
        name: [f"{name}.copy{n}" for n in range(space.count)] if any(map(_is_index, space.index)) else [name]
        for name, space in blueprint.spaces.items()
        if not _is_index(name)
    }
    after = blueprint.after_folding
    return replace(
        blueprint,
        spaces=spaces,
        parameters={name: tuple(map(_dissolve, axes)) for name, axes in blueprint.parameters.items()},
        outputs={name: tuple(map(_dissolve, axes)) for name, axes in blueprint.outputs.items()},
        seen_key_biases=tuple(own for name in blueprint.seen_key_biases for own in named[name]),
        trials={own: blueprint.trials.get(name, ()) for name, every in named.items() for own in every},
        after_folding=None if after is None else dissolved(after),
    )


def _families(blueprint: Blueprint) -> dict[str, _Family]:
    """Numbered spaces by their common name, those that one axis lists counted by one index."""
    counts: dict[str, int] = {}
    for name, space in blueprint.spaces.items():
        if (match := _COPY.match(name)) and not space.index and not _COPY.match(match["base"]):
            counts[match["base"]] = counts.get(match["base"], 0) + 1
    first = {base: base for base in counts}

    def leader(base: str) -> str:
        while first[base] != base:
            base = first[base]
        return base

    for axes in _every(blueprint):
        for axis in axes:
            together = [base for base in dict.fromkeys(map(_base, spaces_of(axis))) if base in counts]
            for base in together[1:]:
                if counts[base] == counts[together[0]]:
                    first[leader(base)] = leader(together[0])
    return {base: _Family(base, f"{leader(base)}.{INDEX}", count) for base, count in counts.items()}


def _gathered(blueprint: Blueprint, families: Mapping[str, _Family]) -> Blueprint:
    spaces: dict[str, Space] = {}
    for name, space in blueprint.spaces.items():
        family = families.get(_base(name))
        if family is None:
            spaces[name] = space
            continue
        index = Space(family.index, Permutation(family.count), Role.HEADS, space.layer)
        spaces.setdefault(family.index, index)
        spaces.setdefault(family.base, replace(space, name=family.base, index=(family.index,), copies=(family.count,)))
    trials = {_base(name) if _base(name) in families else name: found for name, found in blueprint.trials.items()}
    seen = dict.fromkeys(_base(name) if _base(name) in families else name for name in blueprint.seen_key_biases)
    after = blueprint.after_folding
    return replace(
        blueprint,
        spaces=spaces,
        parameters={n: tuple(_gather(a, families) for a in axes) for n, axes in blueprint.parameters.items()},
        outputs={n: tuple(_gather(a, families) for a in axes) for n, axes in blueprint.outputs.items()},
        seen_key_biases=tuple(seen),
        trials=trials,
        after_folding=None if after is None else _gathered(after, families),
    )


def _every(blueprint: Blueprint) -> Iterator[tuple[Axis, ...]]:
    yield from (*blueprint.parameters.values(), *blueprint.outputs.values())
    if blueprint.after_folding is not None:
        yield from _every(blueprint.after_folding)


def _base(name: str) -> str:
    match = _COPY.match(name)
    return name if match is None else match["base"]


def _is_index(name: str) -> bool:
    return name.endswith(f".{INDEX}")


def _gather(axis: Axis, families: Mapping[str, _Family]) -> Axis:
    """An axis with every run of copies, one after the other and alike, as one space along their index."""
    match axis:
        case Per():
            return Per(axis.space, axis.count, _gather(axis.inner, families))
        case Scaled():
            return Scaled(axis.space, axis.power, _gather(axis.inner, families))
        case Concat():
            parts, out = list(axis.parts), list[Axis]()
            while parts:
                run, length = _run(parts, families)
                out.append(_gather(parts[0], families) if run is None else run)
                parts = parts[length:]
            return joined(out)
    return axis


def _run(parts: Sequence[Axis], families: Mapping[str, _Family]) -> tuple[Axis | None, int]:
    """The run of copies that the first of some parts begin, and its length; None and one where they begin none."""
    numbers = [_number(part, families) for part in parts]
    if numbers[0] != 0:
        return None, 1
    family = next(found for name in spaces_of(parts[0]) if (found := families.get(_base(name))))
    each = next((position for position, number in enumerate(numbers) if number != 0), len(numbers))
    length = each * family.count
    runs = [[_renamed(part, "") for part in parts[start : start + each]] for start in range(0, length, each)]
    if numbers[:length] != [i for i in range(family.count) for _ in range(each)] or any(r != runs[0] for r in runs):
        return None, 1
    return Per(family.index, family.count, joined(runs[0])), length


def _number(axis: Axis, families: Mapping[str, _Family]) -> int | None:
    """The number of the copy that an axis is of; None where it is of none, or of several."""
    matches = [_COPY.match(name) for name in spaces_of(axis)]
    numbers = {int(match["number"]) for match in matches if match is not None and match["base"] in families}
    return numbers.pop() if len(numbers) == 1 else None


def _dissolve(axis: Axis) -> Axis:
    match axis:
        case Per() if _is_index(axis.space):
            return joined(_renamed(axis.inner, f".copy{number}") for number in range(axis.count))
        case Per():
            return Per(axis.space, axis.count, _dissolve(axis.inner))
        case Concat():
            return joined(_dissolve(part) for part in axis.parts)
        case Across():
            return Across(axis.blocks, axis.dim, _dissolve(axis.inner))
        case Scaled():
            return Scaled(axis.space, axis.power, _dissolve(axis.inner))
    return axis


def _renamed(axis: Axis, ending: str) -> Axis:
    """An axis of one copy, by its common name where the ending is empty, else by that with the ending."""
    match axis:
        case Along():
            return replace(axis, space=_base(axis.space) + ending)
        case Per():
            return Per(_base(axis.space) + ending, axis.count, _renamed(axis.inner, ending))
        case Scaled():
            return Scaled(_base(axis.space) + ending, axis.power, _renamed(axis.inner, ending))
        case Concat():
            return Concat(*(_renamed(part, ending) for part in axis.parts))
        case Fixed():
            return axis
    raise TypeError(f"{axis!r} is no axis of a numbered copy")
