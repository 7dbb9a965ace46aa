"""Gauges that no output notices: means that a norm or a softmax subtracts, biases inside of heads."""

from __future__ import annotations

from dataclasses import replace

from fusionlab.symmetry.axes import Along
from fusionlab.symmetry.biases import clear_biases
from fusionlab.symmetry.blueprint import Blueprint
from fusionlab.symmetry.folding import fold
from fusionlab.symmetry.groups import OrthogonalFixingOnes, Permutation
from fusionlab.symmetry.infer.attempts import Attempts
from fusionlab.symmetry.infer.other_batch import OtherBatch
from fusionlab.symmetry.roles import Role


def centred(after: Blueprint, attempts: Attempts) -> tuple[str, ...]:
    """Streams whose mean over features is never seen."""
    found = []
    # The state knows each tensor by one name.
    after = replace(after, parameters={name: after.parameters[name] for name in attempts.state})
    state = fold(attempts.state, after)
    for name, space in after.spaces.items():
        if isinstance(space.group, OrthogonalFixingOnes):
            without = fold(state, replace(after, centred=(name,)))
            found += [name] if attempts.same(without) else []
    return tuple(found)


def seen_biases(blueprint: Blueprint, attempts: Attempts) -> tuple[str, ...]:
    """Spaces inside of heads whose biases cannot be cleared without being noticed."""
    inside = [
        name
        for name, space in blueprint.spaces.items()
        if space.role in (Role.QUERY_KEY, Role.VALUE_OUTPUT) and space.group.is_general_linear
    ]
    seen = []
    for name in inside:
        others = tuple(other for other in inside if other != name)
        cleared = clear_biases(attempts.state, replace(blueprint, seen_key_biases=others))
        seen += [] if attempts.same(cleared) else [name]
    return tuple(seen)


def unseen_means(blueprint: Blueprint, attempts: Attempts, other: OtherBatch) -> tuple[tuple[str, int], ...]:
    """The places where a constant may be added along a space of permutations; shown on this batch and on another."""
    state = attempts.state
    found = []
    for name, axes in blueprint.parameters.items():
        for dim, axis in enumerate(axes if name in state else ()):
            if not isinstance(axis, Along) or not isinstance(blueprint.spaces[axis.space].group, Permutation):
                continue
            shifted = attempts.unseen_shift(name, dim)
            if shifted is not None and not attempts.is_silent(name) and other.same({name: shifted}):
                found.append((name, dim))
    return tuple(found)
