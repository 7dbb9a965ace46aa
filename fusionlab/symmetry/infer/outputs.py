"""Outputs whose basis alignments change: of one kind as one; of a real model from those of the small one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from fusionlab.symmetry.axes import Axis, spaces_of
from fusionlab.symmetry.blueprint import Blueprint, SymmetryError
from fusionlab.symmetry.infer.instances import Instances
from fusionlab.symmetry.infer.meanings import Meaning, meaning
from fusionlab.symmetry.infer.places import Indices, Place, Places

Axes = tuple[Axis, ...]
# Words in the names of outputs and of the lists whose layers they are of.
_STACKS = ("encoder", "decoder", "cross", "text", "vision")


def grown_outputs(
    small: Blueprint,
    hints: Mapping[str, tuple[int, int]],
    instances: Instances,
    places: Places,
    real_axes: Callable[[Axes, Indices], Axes],
) -> dict[str, Axes]:
    """The outputs whose basis alignments change, by name, without those whose numbers are not those of layers.

    Args:
        small: what they are in the small model.
        hints: fields of the config.
        instances: of spaces.
        places: of parameters.
        real_axes: axes in a real place.
    """
    found: dict[str, Axes] = {}
    done: set[str] = set()
    for name, axes in small.outputs.items():
        stem, _, number = name.rpartition(".")
        if not number.isdigit():
            found[name] = real_axes(axes, _innermost(_place(axes, instances), (), places))
        elif stem not in done:
            done.add(stem)
            numbered = {
                int(other.rpartition(".")[2]): other_axes
                for other, other_axes in small.outputs.items()
                if other.rpartition(".")[0] == stem
            }
            try:
                grown = (
                    _of_runs(numbered, hints, instances, places, real_axes)
                    or _of_layers(numbered, instances, places, real_axes)
                    or _counted(stem, numbered, hints, instances, places, real_axes)
                )
            except SymmetryError:
                # Some layers give none, and nothing says which: all that is lost is how to compare them.
                continue
            found.update({f"{stem}.{real}": real_axes_ for real, real_axes_ in grown.items()})
    return found


def _place(axes: Axes, instances: Instances) -> Place:
    """The innermost place of the spaces of an output."""
    return max((instances.place[space] for axis in axes for space in spaces_of(axis)), key=len, default=())


def _of_runs(
    numbered: Mapping[int, Axes],
    hints: Mapping[str, tuple[int, int]],
    instances: Instances,
    places: Places,
    real_axes: Callable[[Axes, Indices], Axes],
) -> dict[int, Axes]:
    """Outputs of layers that run several times, which the config counts and no list does; empty if there are none.

    Each set of parameters runs equally often, one after the other, in the small model as in the real one.
    """
    lengths = {(small, real) for _, small, real in places.lengths()}
    fields = {f: sizes for f, sizes in hints.items() if meaning(f.rpartition(".")[2]) == Meaning.LAYERS}
    # A part of a larger model has the whole one's config, which counts the layers of stacks that it has not.
    lacking = [word for word in _STACKS if not any(word in name for name in places.layers)]
    runs = {s for f, s in fields.items() if s[0] != s[1] and not any(word in f for word in lacking)} - lengths
    inside = {number: _place(axes, instances) for number, axes in numbered.items()}
    if len(runs) != 1 or not all(inside.values()) or any(places.shrunk(step) for at in inside.values() for step in at):
        return {}
    (small, real), count = runs.pop(), len(numbered)
    if count % small or sorted(numbered) != list(range(count)):
        return {}
    each = count // small
    standing = {number: number // each * small // real * each + number % each for number in range(real * each)}
    at = {number: tuple(step.index for step in place) for number, place in inside.items()}
    return {number: real_axes(numbered[other], at[other]) for number, other in standing.items()}


def _of_layers(
    numbered: Mapping[int, Axes], instances: Instances, places: Places, real_axes: Callable[[Axes, Indices], Axes]
) -> dict[int, Axes]:
    """Outputs whose numbers are those of the list entries that their spaces live in; empty if they are not."""
    at = {number: _place(axes, instances) for number, axes in numbered.items()}
    depth = min(len(place) for place in at.values())
    for level in range(1, depth + 1):
        if any(instances.small_rank(place[:level]) != number for number, place in at.items()):
            continue
        found: dict[int, Axes] = {}
        for number, place in at.items():
            for outer, _ in places.spread([place[:level]], lambda prefix: prefix):
                inner = _innermost(place, outer, places)
                found[instances.rank(outer, place)] = real_axes(numbered[number], inner)
        return dict(sorted(found.items()))
    return {}


def _innermost(place: Place, outer: Indices, places: Places) -> Indices:
    """A place inside a real list entry, the last of a list for the small list's last."""
    for step in place[len(outer) :]:
        entries = places.entries(step.list, outer)
        fitting = sorted(real for real, small in entries.items() if small == step.index)
        if len(fitting) > 1 and step.index != max(entries.values()):
            raise SymmetryError(f"an output is of entry {step.index} of {step.list}, which stands for several")
        outer = (*outer, fitting[-1])
    return outer


def _counted(
    stem: str,
    numbered: Mapping[int, Axes],
    hints: Mapping[str, tuple[int, int]],
    instances: Instances,
    places: Places,
    real_axes: Callable[[Axes, Indices], Axes],
) -> dict[int, Axes]:
    """Outputs of spaces that live around the layers: as many as there are layers, or the one behind the last."""
    inside = {number: _place(axes, instances) for number, axes in numbered.items()}
    if any(places.shrunk(step) for place in inside.values() for step in place):
        raise SymmetryError(f"the outputs {stem} are not counted as layers are")
    at = {number: tuple(step.index for step in place) for number, place in inside.items()}
    every = sorted(numbered) == list(range(len(numbered)))
    count = len(numbered) if every else max(numbered)
    real = _layers(stem, count, hints, places)
    if not every:
        if len(numbered) > 1 and real != count:
            raise SymmetryError(f"the outputs {stem} are not counted as layers are")
        return {number - count + real: real_axes(axes, at[number]) for number, axes in numbered.items()}
    if real != count and len(set(numbered.values())) > 1:
        raise SymmetryError(f"the outputs {stem} differ, and {count} of them cannot stand for {real}")
    return {number: real_axes(numbered[min(number, count - 1)], at[min(number, count - 1)]) for number in range(real)}


def _layers(stem: str, count: int, hints: Mapping[str, tuple[int, int]], places: Places) -> int:
    """The real number of layers where the small one is `count`."""
    named = [(f, *sizes) for f, sizes in hints.items() if meaning(f.rpartition(".")[2]) == Meaning.LAYERS]
    # Lists within lists have no outputs that are numbered by themselves.
    outermost = [lengths for lengths in places.lengths() if not re.search(r"\.\d", lengths[0])]
    for extra in (0, 1):
        fitting = [(name, real + extra) for name, small, real in (*outermost, *named) if small + extra == count]
        words = [word for word in _STACKS if re.search(word, stem)]
        words = ["decoder"] if "cross" in words else words
        chosen = [real for name, real in fitting if words and any(word in name for word in words)]
        found = set(chosen or [real for _, real in fitting])
        if len(found) > 1:
            raise SymmetryError(f"the outputs {stem} may be of stacks of {' or '.join(map(str, sorted(found)))} layers")
        if found:
            return found.pop()
    return count


def by_kind(axes: Mapping[str, Axes]) -> dict[str, Axes]:
    """Outputs of one kind as one where their axes are the same: all hidden states."""
    kinds: dict[str, list[str]] = {}
    for name in axes:
        kinds.setdefault(name.rsplit(".", 1)[0], []).append(name)
    out = {}
    for kind, names in kinds.items():
        if len({axes[name] for name in names}) == 1:
            out[kind] = axes[names[0]]
        else:
            out.update({name: axes[name] for name in names})
    return out
