"""Sizes of the real model's spaces: from its shapes, and from its config where shapes leave a choice."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from fusionlab.symmetry.axes import Fixed
from fusionlab.symmetry.blueprint import Blueprint, SymmetryError
from fusionlab.symmetry.groups import Permutation
from fusionlab.symmetry.infer.equations import Equations, Polynomial, Unknown, length
from fusionlab.symmetry.infer.instances import Instances
from fusionlab.symmetry.infer.meanings import Meaning, meaning
from fusionlab.symmetry.infer.places import Indices, Places
from fusionlab.symmetry.roles import Role

# What a field is called that says how large a space of a role is.
CALLED = {
    Role.HEADS: r"^(?!width of ).*(heads?|n_head|groups?)",
    Role.QUERIES: r"sharing",
    Role.GROUPS: r"groups?",
    Role.QUERY_KEY: r"head_dim|rotary|d_kv|width of a head|head_size|rank",
    Role.VALUE_OUTPUT: r"head_dim|d_kv|width of a head|head_size|rank",
    Role.UNITS: r"intermediate|ffn|inner|d_ff|mlp|expert",
    Role.RESIDUAL: r"hidden_size|d_model|n_embd|dim|embed",
}
_WIDTHS_OF_HEADS = (Role.QUERY_KEY, Role.VALUE_OUTPUT)
_NUMBERS_OF_HEADS = (Meaning.HEADS, Meaning.KEY_VALUE_HEADS)


def solved_sizes(
    small: Blueprint,
    instances: Instances,
    places: Places,
    shapes: Mapping[str, tuple[int, ...]],
    hints: Mapping[str, tuple[int, int]],
) -> dict[Unknown, int]:
    """The size of every space in every real place, and of every stretch of known length without a space.

    Raises:
        SymmetryError: the shapes contradict each other, or leave open what the hints do not say.
    """
    lengths: list[tuple[Polynomial, int, str]] = []
    alone: dict[Unknown, set[int]] = {}
    for real, stand_in in places.layers.items():
        indices = places.indices(real)
        axes = small.parameters[stand_in]
        if len(axes) != len(shapes[real]):
            raise SymmetryError(f"{real!r} has {len(shapes[real])} dimensions and {stand_in!r} {len(axes)}")
        for dim, (axis, size) in enumerate(zip(axes, shapes[real], strict=True)):
            polynomial = length(axis, _namer(instances, indices), _fixer(indices))
            if polynomial is None:
                continue
            lengths.append((polynomial, size, f"dimension {dim} of {real!r}"))
            if isinstance(axis, Fixed) and axis.size not in (None, 1):
                alone.setdefault((axis.size, indices), set()).add(size)
    # Stretches without a space that are equally long in the small model by chance say nothing of each other.
    chance: list[Polynomial] = [{(unknown,): 1} for unknown, sizes in alone.items() if len(sizes) > 1]
    equations = Equations()
    known: dict[Unknown, None] = {}
    for polynomial, size, what in lengths:
        if polynomial in chance:
            continue
        equations.add(polynomial, size, what)
        for factors in polynomial:
            known.update(dict.fromkeys(factors))
    for space, place in instances.place.items():
        known.update(dict.fromkeys((space, at) for at, _ in places.spread([place], lambda place: place)))
    # A factor is one number, in any model.
    one = {name for name, space in small.spaces.items() if space.group.is_factor}
    equations.values.update({unknown: 1 for unknown in known if unknown[0] in one})
    equations.propagate()
    _use_hints(small, equations, known, hints)
    return equations.values


def _namer(instances: Instances, indices: Indices) -> Callable[[str], Unknown]:
    return lambda space: (space, instances.at(space, indices))


def _fixer(indices: Indices) -> Callable[[int], Unknown]:
    return lambda size: (size, indices)


def _is_a_size(field: str) -> bool:
    """The field counts no layers and names no token."""
    return meaning(field.rpartition(".")[2]) not in (Meaning.LAYERS, Meaning.TOKEN)


def _use_hints(
    small: Blueprint, equations: Equations, known: Mapping[Unknown, None], hints: Mapping[str, tuple[int, int]]
) -> None:
    """Decide what shapes leave open: permutations first, since all that they permute follows from them."""

    def permutes(unknown: Unknown) -> bool:
        return unknown[0] in small.spaces and isinstance(small.spaces[str(unknown[0])].group, Permutation)

    def decide(unknown: Unknown, by_name: bool) -> bool:
        """Take the one value that a field of the config gives and no length contradicts, where there is one."""
        space = small.spaces.get(str(unknown[0]))
        size = unknown[0] if space is None else space.group.size
        called = None if space is None else CALLED.get(space.role)
        fields = {name: real for name, (little, real) in hints.items() if little == size and _is_a_size(name)}
        if space is not None and space.role in _WIDTHS_OF_HEADS:
            # How many heads there are says nothing of how wide one is.
            fields = {n: real for n, real in fields.items() if meaning(n.rpartition(".")[2]) not in _NUMBERS_OF_HEADS}
        if by_name:
            fields = {n: real for n, real in fields.items() if called and re.search(called, n.rpartition(".")[2])}
        consistent = equations.consistent(unknown, sorted(set(fields.values())))
        return len(consistent) == 1 and equations.suppose(unknown, consistent[0])

    # What one name says may settle what another leaves open; only then numbers that are the same by themselves.
    waiting = sorted(known, key=permutes, reverse=True)
    for by_name in (True, False):
        decided = 1
        while decided:
            waiting = [unknown for unknown in waiting if unknown not in equations.values]
            decided = sum(decide(unknown, by_name) for unknown in waiting if unknown not in equations.values)
    for unknown in known:
        if unknown not in equations.values:
            raise SymmetryError(f"neither shapes nor config say the size of {unknown[0]!r} of the small model")
