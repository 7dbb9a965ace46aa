"""Spaces of the real model: each of the small model's, once for every real place that its own stands for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fusionlab.symmetry.axes import Across, Along, Axis, Concat, Fixed, Per, Scaled, spaces_of
from fusionlab.symmetry.blueprint import Blueprint, Space, SymmetryError
from fusionlab.symmetry.infer.equations import Unknown
from fusionlab.symmetry.infer.places import Indices, Place, Places, common, starred


@dataclass
class Instances:
    """The places of the small model's spaces, and their names in each real place.

    A space lives in the innermost list entry that holds all parameters it acts on; one that acts on several layers
    lives around them and has one instance.
    """

    small: Blueprint
    places: Places
    place: dict[str, Place] = field(default_factory=dict)
    _levels: dict[str, int] = field(default_factory=dict)
    _ranks: dict[tuple[int, str], dict[Indices, int]] = field(default_factory=dict)
    _small_ranks: dict[tuple[int, str], dict[Indices, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        touched: dict[str, list[Place]] = {}
        for name, axes in self.small.parameters.items():
            here = self.places.of(name)
            for space in {space for axis in axes for space in spaces_of(axis)}:
                touched.setdefault(space, []).append(here)
        # What indexes copies lives around them.
        for inner in reversed(list(self.small.spaces.values())):
            for outer in inner.index:
                touched.setdefault(outer, []).extend(touched.get(inner.name, []))
        self.place = {name: common(touched.get(name, [])) for name in self.small.spaces}
        self._find_levels()

    def at(self, space: str, indices: Indices) -> Indices:
        """The real place of a space's instance that acts in one real place."""
        return indices[: len(self.place[space])]

    def name(self, space: str, indices: Indices) -> str:
        """The name of the instance of a space in one real place."""
        return self._renamed(space, indices, self.layer(self.small.spaces[space], indices))

    def small_name(self, space: str, indices: Indices) -> str:
        """The name that a space of the small model would have in another of its layers."""
        place = self.place[space]
        level = self._levels.get(place[0].list, 0) if place else 0
        other = tuple(replace(step, index=index) for step, index in zip(place, indices, strict=False))
        return self._renamed(space, indices, self.small_rank(other[:level]) if level else None)

    def layer(self, space: Space, indices: Indices) -> int | None:
        """The number of the real layer that an instance belongs to."""
        place = self.place[space.name]
        if space.layer is None or not place:
            return space.layer
        return self.rank(indices[: self._levels[place[0].list]], place)

    def _renamed(self, space: str, indices: Indices, layer: int | None) -> str:
        """A space's dotted name with other numbers for its layer and for the lists that it lives in."""
        place, words, numbered = self.place[space], space.split("."), False
        for position, word in enumerate(words):
            before = words[position - 1] if position else ""
            if not word.isdigit() or not place:
                continue
            if before == "layers" and layer is not None and not numbered:
                numbered = True
                words[position] = str(layer)
                continue
            for step, index in zip(place, indices, strict=False):
                if step.word == before and step.index == int(word):
                    words[position] = str(index)
        return ".".join(words)

    def axis(self, axis: Axis, indices: Indices, sizes: Mapping[Unknown, int]) -> Axis:
        """An axis of the small model in one real place.

        Args:
            axis: the small one.
            indices: the real place.
            sizes: by unknown.
        """
        match axis:
            case Fixed():
                return axis if axis.size in (None, 1) else Fixed(sizes[axis.size, indices])
            case Along():
                key = axis.space, self.at(axis.space, indices)
                return Along(self.name(*key), sizes[key], axis.is_dual)
            case Per():
                key = axis.space, self.at(axis.space, indices)
                return Per(self.name(*key), sizes[key], self.axis(axis.inner, indices, sizes))
            case Concat():
                return Concat(*(self.axis(part, indices, sizes) for part in axis.parts))
            case Across():
                keys = [(space, self.at(space, indices)) for space in axis.spaces]
                blocks = tuple((self.name(*key), sizes[key]) for key in keys)
                return Across(blocks, axis.dim, self.axis(axis.inner, indices, sizes))
            case Scaled():
                name = self.name(axis.space, self.at(axis.space, indices))
                return Scaled(name, axis.power, self.axis(axis.inner, indices, sizes))
        raise TypeError(f"{axis!r} is no axis")

    def in_text(self, text: str) -> list[str]:
        """The spaces that live in a list and that a note names, longest names first."""
        inside = sorted((name for name, place in self.place.items() if place), key=len, reverse=True)
        return [name for name in inside if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w]|\.\w)", text)]

    def _find_levels(self) -> None:
        """Find how deep the layers are that spaces' numbers count, for every outermost list."""
        by_list: dict[str, list[tuple[Place, int]]] = {}
        for name, place in self.place.items():
            layer = self.small.spaces[name].layer
            if place and layer is not None:
                by_list.setdefault(place[0].list, []).append((place, layer))
        for name, numbered in by_list.items():
            depth = min(len(place) for place, _ in numbered)
            fitting = (
                level
                for level in range(1, depth + 1)
                if all(self.small_rank(place[:level]) == layer for place, layer in numbered)
            )
            if (level := next(fitting, None)) is None:
                raise SymmetryError(f"the layers of the spaces in {name} are not counted as its entries are")
            self._levels[name] = level

    def rank(self, indices: Indices, place: Place) -> int:
        """The number of a real list entry, counted over all lists of the same pattern."""
        key = len(indices), starred(place[len(indices) - 1].list)
        if key not in self._ranks:
            self._ranks[key] = {at: rank for rank, (at, _) in enumerate(self.places.prefixes(*key))}
        return self._ranks[key][indices]

    def small_rank(self, place: Place) -> int:
        """The same of a small one."""
        key = len(place), starred(place[-1].list)
        if key not in self._small_ranks:
            every = {tuple(step.index for step in here) for _, here in self.places.prefixes(*key)}
            self._small_ranks[key] = {at: rank for rank, at in enumerate(sorted(every))}
        return self._small_ranks[key].get(tuple(step.index for step in place), -1)
