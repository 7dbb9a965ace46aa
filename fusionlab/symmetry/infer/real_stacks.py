"""Stacks of a real model from those of the small one that stands for it: there may be more experts in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fusionlab.symmetry.blueprint import Blueprint
from fusionlab.symmetry.infer.shrink import Shrunk
from fusionlab.symmetry.stacks import Stacks

Shapes = Mapping[str, tuple[int, ...]]


def real_stacks(small: Stacks, layers: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The stacks of a real model.

    Args:
        small: of the small one.
        layers: for every name in the real model's state the one in the small model's that stands for it.
    """
    stack_of = _stack_of(small)
    found: dict[str, dict[int, str]] = {}
    for name, stands in layers.items():
        if stands in stack_of:
            # Of layers the names are counted otherwise, of experts they have the same words.
            words, starred = name.split("."), stack_of[stands].split(".")
            place = next(place for place, word in enumerate(starred) if word.endswith("*"))
            number = int(words[place].removeprefix(starred[place].removesuffix("*")))
            found.setdefault(".".join((*words[:place], starred[place], *words[place + 1 :])), {})[number] = name
    return {stack: tuple(entries[number] for number in sorted(entries)) for stack, entries in found.items()}


def with_real_stacks(shrunk: Shrunk, shapes: Shapes, small: Stacks, real: Stacks) -> tuple[Shrunk, Shapes]:
    """The small model and the real one's shapes, with stacks in the place of their entries.

    Args:
        shrunk: how the small model stands for the real one.
        shapes: of every parameter and persistent buffer in the real model's state.
        small: the small model's stacks.
        real: the real one's.
    """
    if not small:
        return shrunk, shapes
    first = {entries[0]: stack for stack, entries in real.items()}
    others = {name for entries in real.values() for name in entries[1:]}
    stack_of, layers, whole = _stack_of(small), dict[str, str](), dict[str, tuple[int, ...]]()
    for name, stands in shrunk.layers.items():
        if name not in others:
            stack = first.get(name, name)
            layers[stack] = stack_of.get(stands, stands)
            whole[stack] = shapes[name] if stack == name else (len(real[stack]), *shapes[name])
    alike = {stack_of.get(name, name): stack_of.get(other, other) for name, other in shrunk.alike.items()}
    return replace(shrunk, layers=layers, alike={name: o for name, o in alike.items() if name != o}), whole


def of_stacks(blueprint: Blueprint, stacks: Stacks) -> Blueprint:
    """The blueprint of a model with these stacks, whose axes it has already."""
    after = blueprint.after_folding
    return replace(blueprint, stacks=stacks, after_folding=after and of_stacks(after, stacks))


def _stack_of(stacks: Stacks) -> dict[str, str]:
    return {name: stack for stack, entries in stacks.items() for name in entries}
