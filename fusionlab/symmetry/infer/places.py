"""Places: which entries of numbered lists a parameter lies in, in a small model and in the real one it stands for.

Real layers are more than small ones, so that what is said of a small place is said of several real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fusionlab.symmetry.blueprint import SymmetryError

Item = TypeVar("Item")
Indices = tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """One entry of a list: the list's name in the small model, and the entry's index there."""

    list: str
    index: int

    @property
    def word(self) -> str:
        """The last word of the list's name."""
        return self.list.rsplit(".", 1)[-1]


Place = tuple[Step, ...]


@dataclass
class Places:
    """The lists of a small model, and which entries of the real one theirs stand for.

    Attributes:
        layers: for every real name the small one that stands for it.
    """

    layers: Mapping[str, str]
    _same: dict[str, str] = field(default_factory=dict)
    _entries: dict[tuple[str, Indices], dict[int, int]] = field(default_factory=dict)
    _real: dict[tuple[str, Indices], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        raw: dict[str, dict[tuple[Indices, int], int]] = {}
        for real, small in self.layers.items():
            outer: Indices = ()
            for name, index, other in _numbers(real, small):
                raw.setdefault(name, {})[outer, index] = other
                outer = (*outer, index)
            self._real[small, outer] = real
        # Lists beside each other whose entries correspond alike are the parts of one list of layers.
        first: dict[tuple[str, tuple[tuple[tuple[Indices, int], int], ...]], str] = {}
        for name, entries in raw.items():
            parent = name.rpartition(".")[0]
            self._same[name] = first.setdefault((parent, tuple(sorted(entries.items()))), name)
        for real, small in self.layers.items():
            outer = ()
            for name, index, other in _numbers(real, small):
                self._entries.setdefault((self._same[name], outer), {})[index] = other
                outer = (*outer, index)

    def of(self, small: str) -> Place:
        """The place of one of the small model's names."""
        words = small.split(".")
        names = [".".join(words[:position]) for position, word in enumerate(words) if word.isdigit()]
        numbers = [int(word) for word in words if word.isdigit()]
        return tuple(Step(self._same.get(name, name), index) for name, index in zip(names, numbers, strict=True))

    @staticmethod
    def indices(real: str) -> Indices:
        """The numbers in one of the real model's names."""
        return tuple(int(word) for word in real.split(".") if word.isdigit())

    def real(self, small: str, indices: Indices) -> str:
        """The real name that a small one stands for in one place.

        Raises:
            SymmetryError: it stands for none there.
        """
        if (small, indices) not in self._real:
            raise SymmetryError(f"{small!r} of the small model stands for nothing at {indices} of the real one")
        return self._real[small, indices]

    def entries(self, name: str, outer: Indices = ()) -> dict[int, int]:
        """For every entry of a real list the small one that stands for it.

        Args:
            name: of the list in the small model.
            outer: the entry of the lists around it.
        """
        return self._entries.get((name, outer), {})

    def lengths(self) -> list[tuple[str, int, int]]:
        """The name of every list in the small model, its small and its real length."""
        return [(name, len(set(entries.values())), len(entries)) for (name, _), entries in self._entries.items()]

    def shrunk(self, step: Step) -> bool:
        """The list has other entries in the real model."""
        return any(
            real != small
            for (name, _), entries in self._entries.items()
            if name == step.list
            for real, small in entries.items()
        )

    def spread(
        self, items: Sequence[Item], place: Callable[[Item], Place], outer: Indices = ()
    ) -> Iterable[tuple[Indices, Item]]:
        """Everything that is said of small places, said of the real ones, layer after layer.

        Args:
            items: in order.
            place: of an item.
            outer: the real place that all are in.

        Returns:
            Each item with each of its real places.
        """
        depth, start = len(outer), 0
        while start < len(items):
            here = place(items[start])
            if len(here) <= depth:
                yield outer, items[start]
                start += 1
                continue
            end, name = start, here[depth].list
            by_index: dict[int, list[Item]] = {}
            while end < len(items) and len(at := place(items[end])) > depth and at[depth].list == name:
                by_index.setdefault(at[depth].index, []).append(items[end])
                end += 1
            for real, small in sorted(self.entries(name, outer).items()):
                yield from self.spread(by_index.get(small, []), place, (*outer, real))
            start = end

    def prefixes(self, depth: int, pattern: str) -> list[tuple[Indices, Place]]:
        """All real places of some depth in lists of one pattern, in order, with the small ones that stand for them."""
        found: dict[Indices, Place] = {}
        for real, small in self.layers.items():
            here = self.of(small)[:depth]
            if len(here) == depth and starred(here[-1].list) == pattern:
                found[self.indices(real)[:depth]] = here
        return sorted(found.items(), key=lambda item: item[0])


def common(places: Iterable[Place]) -> Place:
    """The entries that all places share."""
    found: Place | None = None
    for place in places:
        if found is None:
            found = place
            continue
        same = 0
        while same < min(len(found), len(place)) and found[same] == place[same]:
            same += 1
        found = found[:same]
    return found or ()


def starred(name: str) -> str:
    """A list's name with stars for the numbers in it."""
    return ".".join("*" if word.isdigit() else word for word in name.split("."))


def _numbers(real: str, small: str) -> Iterable[tuple[str, int, int]]:
    """The lists that a pair of names passes through: the small list's name, the real index and the small one."""
    words, others = real.split("."), small.split(".")
    for position, (word, other) in enumerate(zip(words, others, strict=True)):
        if other.isdigit():
            yield ".".join(others[:position]), int(word), int(other)
