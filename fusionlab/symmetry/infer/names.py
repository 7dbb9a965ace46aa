"""Roles and names of the spaces that were found."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from fusionlab.symmetry.groups import Invertible, Orthogonal, Rotary
from fusionlab.symmetry.infer.dims import Dim, Stretch, Variable
from fusionlab.symmetry.infer.found import Found
from fusionlab.symmetry.infer.values import Notes
from fusionlab.symmetry.roles import Role

# Names and, inside a layer, order, which matching follows where spaces meet: a latent, which the stream writes, comes
# before heads that read it, and what lies inside a key-value head before the queries that share it.
KINDS = {
    Role.RESIDUAL: "residual",
    Role.EMBEDDING: "embedding",
    Role.LATENT: "latent",
    Role.EXPERTS: "experts",
    Role.GROUPS: "groups",
    Role.HEADS: "heads",
    Role.QUERY_KEY: "qk",
    Role.QUERY_KEY_SCALE: "qk.scale",
    Role.VALUE_OUTPUT: "vo",
    Role.QUERIES: "queries",
    Role.UNITS: "ffn",
}
ORDER = {role: position for position, role in enumerate(KINDS)}


@dataclass(frozen=True)
class Place:
    """The place of a space: its stack of layers, and its layer.

    The stack's name is empty where there is one only; the layer is None for a space of several.
    """

    stack: str
    layer: int | None


def roles_of(
    found: Sequence[Found],
    notes: Notes,
    around: Mapping[Stretch, Sequence[Variable]],
    parameters: Mapping[str, Sequence[Dim]],
) -> dict[Variable, Role]:
    """The kind of every space that was found.

    Args:
        found: the spaces.
        notes: of the reading.
        around: by stretch, the spaces that it lies inside of.
        parameters: the types of every parameter's dimensions.
    """
    roles = {one.variable: _own_role(one, notes, any(around[s] for s in one.stretches)) for one in found}
    attention = (Role.QUERY_KEY, Role.QUERY_KEY_SCALE, Role.VALUE_OUTPUT)
    of_heads = {v for one in found if roles[one.variable] in attention for s in one.stretches for v in around[s]}
    indexing = {v for one in found if roles[one.variable] in attention for a in one.actions for v in a.index}
    inside: dict[Variable, set[Stretch]] = {}
    for one in found:
        if roles[one.variable] == Role.UNITS:
            for outer in (outer for action in one.actions for outer in action.index):
                inside.setdefault(outer, set()).update(one.stretches)
    permuted = [one for one in found if one.permutation is not None and roles[one.variable] not in attention]
    for one in permuted:
        # Heads may be a dimension of their own.
        if one.variable in of_heads | indexing:
            roles[one.variable] = Role.HEADS
        elif one.variable in inside:
            roles[one.variable] = _role_around_units(one, inside[one.variable], around, parameters)
    roles.update((one.variable, Role.EXPERTS) for one in found if one.variable in notes.experts)
    for one in permuted:
        if roles[one.variable] == Role.EXPERTS:
            # Groups of experts are chosen as experts are.
            roles.update({v: Role.EXPERTS for a in one.actions for v in a.index if roles.get(v) == Role.GROUPS})
    for one in permuted:
        # Nothing has a copy for each of these; they share the bases of the head that they lie in.
        index = one.permutation.index if one.permutation is not None else ()
        if roles[one.variable] == Role.HEADS and any(roles.get(outer) == Role.HEADS for outer in index):
            roles[one.variable] = Role.HEADS if one.variable in indexing else Role.QUERIES
    return roles


def _own_role(one: Found, notes: Notes, is_inside: bool) -> Role:
    """The kind of a space by itself; `is_inside` says that it lies in blocks of another, as in heads."""
    has_basis = any(isinstance(a.group, Invertible | Rotary) for a in (one.basis, one.rotation) if a is not None)
    rotates = any(isinstance(a.group, Orthogonal) for a in (one.basis, one.rotation) if a is not None)
    if one.variable in notes.scores and not rotates:
        return _role_in_scores(one, has_basis, is_inside)
    if one.basis is not None and one.variable in notes.mixed and not isinstance(one.basis.group, Orthogonal):
        return Role.VALUE_OUTPUT
    if one.basis is not None and isinstance(one.basis.group, Rotary):
        return Role.QUERY_KEY
    # Factors of a gain in each expert are the experts', and the stream is the same.
    whole = [action for action in one.actions if not action.group.is_factor] or one.actions
    if one.variable in notes.streams and not any(action.index for action in whole):
        return Role.RESIDUAL
    if has_basis:
        return Role.LATENT
    return Role.UNITS


def _role_around_units(
    one: Found,
    units: Iterable[Stretch],
    around: Mapping[Stretch, Sequence[Variable]],
    parameters: Mapping[str, Sequence[Dim]],
) -> Role:
    """The kind of a space whose blocks hold units: experts, heads of a state space, or groups of channels."""
    blocks = {(name, dim) for name, dim, unit in units if one.variable in around[name, dim, unit]}
    alone = {name for name, dim, _ in one.stretches if (name, dim) not in blocks}
    if any(len(parameters[name]) > 1 for name in alone):
        return Role.EXPERTS  # a dimension of their own, and rows of a router
    # A number for each head, such as a decay, or nothing but the channels in them.
    return Role.HEADS if alone else Role.GROUPS


def _role_in_scores(one: Found, has_basis: bool, is_inside: bool) -> Role:
    """The kind of a space that two activations are contracted along."""
    if one.basis is None and one.permutation is not None:
        return Role.QUERY_KEY if is_inside else Role.UNITS
    return Role.QUERY_KEY if has_basis or one.basis is None else Role.QUERY_KEY_SCALE


def places_of(found: Sequence[Found], parameters: Sequence[str]) -> dict[Variable, Place]:
    """The layer of every space, if it lies in one."""
    stacks = _stack_names(parameters)
    out = {}
    for one in found:
        layers = {layer_of(name) for name, _, _ in one.stretches}
        within = {stacks[layer[0]] for layer in layers if layer is not None}
        only = layers.pop() if len(layers) == 1 else None
        if only is not None:
            out[one.variable] = Place(stacks[only[0]], only[1])
        else:
            out[one.variable] = Place(within.pop() if len(within) == 1 and None not in layers else "", None)
    return out


def layer_of(parameter: str) -> tuple[str, int] | None:
    """The stack and the layer that a parameter's name says."""
    match = re.match(r"(?P<stack>(?:[^.]*\.)*?)(?P<layer>\d+)\.", parameter)
    return None if match is None else (match["stack"], int(match["layer"]))


def _stack_names(parameters: Sequence[str]) -> dict[str, str]:
    """A short name for each stack, by its prefix of names: the part that tells it from the others."""
    prefixes = sorted({layer[0] for layer in map(layer_of, parameters) if layer is not None})
    words = {prefix: prefix.strip(".").split(".") for prefix in prefixes}
    if len(prefixes) < 2:
        return dict.fromkeys(prefixes, "")
    start = len(common_words(list(words.values())))
    end = len(common_words([path[start:][::-1] for path in words.values()]))
    names = {prefix: path[start : len(path) - end] for prefix, path in words.items()}
    # The name of the list says less than what holds it.
    shorter = {prefix: path[:-1] or path for prefix, path in names.items()}
    chosen = shorter if len(set(map(tuple, shorter.values()))) == len(names) else names
    return {prefix: ".".join(path) for prefix, path in chosen.items()}


def names_of(
    found: Sequence[Found], roles: Mapping[Variable, Role], places: Mapping[Variable, Place]
) -> dict[Variable, str]:
    """A name for every space, by its layer and kind; several of one kind in a layer by their modules too."""
    kinds = _kinds(found, roles, places)
    chosen = {one.variable: _named(places[one.variable], (), kinds[one.variable]) for one in found}
    # First by what all its parameters share, then by where most are, then by the first of them, then by a number.
    for alike in _alike(chosen, found):
        chosen.update(_told_apart(alike, places, kinds) if all(places[o.variable].layer is None for o in alike) else {})
    for modules in (_shared_modules, _first_modules):
        taken = list(chosen.values())
        for one in found:
            if taken.count(chosen[one.variable]) > 1:
                chosen[one.variable] = _named(places[one.variable], modules(one), kinds[one.variable])
    return _unique(chosen)


def _kinds(
    found: Sequence[Found], roles: Mapping[Variable, Role], places: Mapping[Variable, Place]
) -> dict[Variable, str]:
    """The last word of every space's name."""
    kinds = {one.variable: KINDS[roles[one.variable]] for one in found}
    groups = {
        outer
        for one in found
        if roles[one.variable] == Role.EXPERTS
        for action in one.actions
        for outer in action.index
        if roles.get(outer) == Role.EXPERTS
    }
    kinds.update(dict.fromkeys(groups, "expert_groups"))
    keys = [one for one in found if roles[one.variable] == Role.QUERY_KEY and one.basis is not None]
    for one in keys:
        turned = isinstance(one.basis.group, Rotary) if one.basis else False
        beside = [o for o in keys if places[o.variable] == places[one.variable] and o.basis is not None]
        if any(isinstance(o.basis.group, Rotary) != turned for o in beside if o.basis is not None):
            kinds[one.variable] = "qk.rotary" if turned else "qk.rest"
    for one in found:
        beside = [o for o in found if places[o.variable] == places[one.variable] and o.permutation is None]
        if roles[one.variable] == Role.QUERY_KEY and one.permutation is not None:
            # Coordinates that positions do not turn.
            kinds[one.variable] = "qk.rest" if any(kinds[o.variable].startswith("qk") for o in beside) else "qk"
    return kinds


def common_words(paths: Sequence[Sequence[str]]) -> list[str]:
    """The words that all paths begin with."""
    same = takewhile(lambda words: len(set(words)) == 1, zip(*paths, strict=False))
    return [words[0] for words in same]


def _named(place: Place, modules: Sequence[str], kind: str) -> str:
    layer = [] if place.layer is None else [f"layers.{place.layer}"]
    return ".".join([*([place.stack] if place.stack else []), *layer, *modules, kind])


def _shared_modules(one: Found) -> tuple[str, ...]:
    """The modules below the layer that all of a space's parameters lie in."""
    return tuple(common_words(_paths(one)))


def _alike(chosen: Mapping[Variable, str], found: Sequence[Found]) -> list[list[Found]]:
    """Those of one name, of every name that several have."""
    groups: dict[str, list[Found]] = {}
    for one in found:
        groups.setdefault(chosen[one.variable], []).append(one)
    return [group for group in groups.values() if len(group) > 1]


def _told_apart(
    alike: Sequence[Found], places: Mapping[Variable, Place], kinds: Mapping[Variable, str]
) -> dict[Variable, str]:
    """Names by the fewest words that tell apart where most of their parameters lie; empty where none do."""
    paths = [_most(one) for one in alike]
    start = len(common_words(paths))
    for end in range(start + 1, max(map(len, paths)) + 1):
        # A number says nothing by itself: what is counted has streams of its own, as stages have.
        words = [["stages"] * path[start].isdigit() + path[start:end] if path[start:] else [] for path in paths]
        if all(words) and len(set(map(tuple, words))) == len(alike):
            named = zip(alike, words, strict=True)
            return {one.variable: _named(places[one.variable], word, kinds[one.variable]) for one, word in named}
    return {}


def _most(one: Found) -> list[str]:
    """The modules that most of a space's parameters lie in, from the outermost on, as far as more than half agree."""
    paths = [[word for word in name.split(".")[:-1] if not word.endswith("*")] for name, _, _ in one.stretches]
    out: list[str] = []
    while True:
        inside = Counter(path[len(out)] for path in paths if path[: len(out)] == out and len(path) > len(out))
        word, count = max(inside.items(), key=lambda item: item[1], default=("", 0))
        if 2 * count <= len(paths):
            return out
        out.append(word)


def _first_modules(one: Found) -> tuple[str, ...]:
    """The modules below the layer that the first of a space's parameters lies in."""
    return tuple(_paths(one)[0])


def _paths(one: Found) -> list[list[str]]:
    return [path_in_layer(name) for name, _, _ in one.stretches]


def path_in_layer(parameter: str) -> list[str]:
    """The modules that a parameter lies in, from below its layer on if it is in one."""
    layer = layer_of(parameter)
    rest = parameter if layer is None else parameter[len(f"{layer[0]}{layer[1]}.") :]
    # What counts experts says nothing: experts.*, expert_*.
    return [word for word in rest.split(".")[:-1] if not word.endswith("*")]


def _unique(names: dict[Variable, str]) -> dict[Variable, str]:
    out: dict[Variable, str] = {}
    for variable, name in names.items():
        count = sum(1 for other in out.values() if other == name or other.startswith(f"{name}:"))
        out[variable] = f"{name}:{count + 1}" if count else name
    return out
