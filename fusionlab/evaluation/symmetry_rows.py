"""Spaces of one kind as one row, and how their group was found in words: for tables and pictures."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from fusionlab.symmetry import Blueprint, Space
from fusionlab.symmetry.axes import spaces_of
from fusionlab.symmetry.evidence import Outcome, Trial
from fusionlab.symmetry.groups import Group, Invertible, Orthogonal

Pattern = tuple[object, ...]


@dataclass(frozen=True)
class Kind:
    """Spaces that differ in nothing but their place.

    Attributes:
        name: theirs, with ``*`` for numbers of layers, such as ``layers.*.qk``.
        spaces: in order.
        folded: what acts on them once gains are folded; their own group where nothing is to be folded.
        norms: how many norms' gains are folded for that, for each space.
    """

    name: str
    spaces: tuple[Space, ...]
    folded: Group
    norms: int

    @property
    def first(self) -> Space:
        """One of them; group, copies and role are those of all."""
        return self.spaces[0]

    @property
    def dimension(self) -> int:
        """Continuous degrees of freedom of all of them."""
        return sum(space.dimension for space in self.spaces)

    @property
    def layers(self) -> str:
        """Their layers, such as ``0-11``; a dash where they belong to none."""
        return ranges(space.layer for space in self.spaces)


def name_of_kind(space: str) -> str:
    """A space's name with ``*`` in place of numbers."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "*", space)


def kinds_of(blueprint: Blueprint) -> list[Kind]:
    """The spaces of a blueprint, those together that differ in nothing but their place; in order of the first."""
    found: dict[Pattern, list[Space]] = {}
    for space in blueprint.spaces.values():
        tried = _pattern(blueprint.trials.get(space.name, ()))
        folded = str(_folded(blueprint, space))
        key = (name_of_kind(space.name), space.role, str(space.group), space.copies, folded, tried)
        found.setdefault(key, []).append(space)
    norms = _norms_by_space(blueprint)
    return [
        Kind(name_of_kind(first.name), (first, *others), _folded(blueprint, first), norms.get(first.name, 0))
        for first, *others in found.values()
    ]


def ranges(layers: Iterable[int | None]) -> str:
    """Numbers of layers as ranges, such as ``0-3, 5``; a dash for none."""
    numbers = sorted({layer for layer in layers if layer is not None})
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs) or "-"


def counted(names: Iterable[str]) -> str:
    """Names with ``*`` for numbers, and how many are of each; ``none`` for none."""
    found = Counter(map(name_of_kind, names))
    return ", ".join(name if count == 1 else f"{name} ({count})" for name, count in found.items()) or "none"


def legend_of(blueprint: Blueprint) -> dict[str, str]:
    """The names of all groups that act or were tried, with their elements in words."""
    after = blueprint.after_folding
    groups = [space.group for described in (blueprint, after) if described for space in described.spaces.values()]
    groups += [trial.group for trials in blueprint.trials.values() for trial in trials]
    return dict(sorted({group.label: group.meaning for group in groups}.items()))


def words_of(kinds: Sequence[Kind], blueprint: Blueprint) -> str:
    """Words for the groups tried on some spaces, from large to small, and their outcomes; empty where nothing was.

    Args:
        kinds: that were found in the same way, see `found_alike`.
        blueprint: theirs. Of several spaces the largest change is told that was none, and the smallest that was one.
    """
    every = [blueprint.trials.get(space.name, ()) for kind in kinds for space in kind.spaces]
    if not every[0]:
        return ""
    of_group = list(zip(*every, strict=True))
    told = _never_tried(kinds[0], every[0])
    for _, alike in groupby(of_group, lambda trials: (trials[0].outcome, _has_number(trials) or trials[0].folded)):
        several = list(alike)
        if _has_number(several[0]):
            told += [_told([trials[0]], trials, kinds[0].norms) for trials in several]
        else:
            told.append(_told([trials[0] for trials in several], (), kinds[0].norms))
    return "; ".join(told)


def found_alike(blueprint: Blueprint) -> list[list[Kind]]:
    """The kinds of spaces by the groups that were tried on them and what came of it; in order of the first."""
    found: dict[Pattern, list[Kind]] = {}
    for kind in kinds_of(blueprint):
        key = (_pattern(blueprint.trials.get(kind.first.name, ())), kind.norms, kind.first.group.is_factor)
        found.setdefault(key, []).append(kind)
    return list(found.values())


def _pattern(trials: Sequence[Trial]) -> Pattern:
    return tuple((trial.group.label, trial.outcome, trial.folded) for trial in trials)


def _has_number(trials: Sequence[Trial]) -> bool:
    """The words on a group tell how much the outputs change."""
    has_outputs = trials[0].outcome in (Outcome.TAKEN, Outcome.CHANGED)
    return has_outputs and any(trial.change is not None for trial in trials)


def _told(groups: Sequence[Trial], trials: Sequence[Trial], norms: int) -> str:
    """Words for what became of some groups; of one, tried on several spaces, with the number that tells."""
    first = groups[0]
    gains = f"the gains of {norms} norms" if norms != 1 else "the gain of 1 norm"
    what = ", ".join(trial.group.meaning for trial in groups)
    what += f", after folding {gains}" if first.folded else ""
    changes = [trial.change for trial in trials if trial.change is not None]
    match first.outcome:
        case Outcome.TAKEN:
            return f"{what}: outputs equal to {max(changes, default=0):.0e}"
        case Outcome.UNSEEN:
            return f"{what}: outputs equal, but with a part of it alone too, so nothing is shown"
        case Outcome.CHANGED:
            return f"{what}: outputs change{f' by {min(changes):.0e}' if changes else ' or cannot be computed'}"
        case Outcome.UNTRIED:
            return f"{what}: no axes to act on"


def _never_tried(kind: Kind, trials: Sequence[Trial]) -> list[str]:
    """The larger groups that types and powers did not propose, so that they were never tried."""
    size, tried = kind.first.group.size, [trial.group for trial in trials]
    if kind.first.group.is_factor or any(group.is_general_linear for group in tried):
        return []
    larger = [Invertible(size).meaning]
    if not any(isinstance(group, Orthogonal) for group in tried):
        larger.append(Orthogonal(size).meaning)
    return [f"{', '.join(larger)}: not proposed by the graph"]


def _folded(blueprint: Blueprint, space: Space) -> Group:
    after = blueprint.after_folding
    return space.group if after is None or space.name not in after.spaces else after.spaces[space.name].group


def _norms_by_space(blueprint: Blueprint) -> dict[str, int]:
    """The norms whose gains run through each space, by its name."""
    found: dict[str, int] = {}
    for norm in blueprint.norms:
        for space in {space for axis in blueprint.parameters[norm.weight] for space in spaces_of(axis)}:
            found[space] = found.get(space, 0) + 1
    return found
