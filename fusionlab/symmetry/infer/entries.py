"""Entries of lists that may change places: experts that are modules of their own, or that a loop takes by number.

Types do not show them, since each expert has parameters, or a place, of its own. So structure proposes them: a numbered
list whose modules are alike and work beside each other, or a tensor whose entries do, where some other dimension is as
long, as that of a router's rows is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import fx

from fusionlab.symmetry.infer.interpreter import operation_of
from fusionlab.symmetry.infer.trace import Traced

# A name with a number at the end of one of its words: experts.3, expert_3.
_NUMBERED = re.compile(r"(?P<stem>.*?)(?P<number>\d+)$")
# Operations in which what experts compute meets: anything else has one of them read another.
_MEETING = frozenset(
    ("add", "sub", "mul", "maximum", "minimum", "cat", "stack", "where", "copy", "index_add", "index_put", "index_copy")
) | {"scatter", "scatter_add", "scatter_reduce", "select_scatter", "slice_scatter"}
_SAME = frozenset(("alias", "detach", "clone", "_to_copy", "lift_fresh_copy", "contiguous"))
# A parameter and one of its dimensions.
Place = tuple[str, int]


@dataclass(frozen=True)
class Bundle:
    """Parameters of which a permutation of entries would move all or none.

    Attributes:
        stacks: by a name for all, the parameters of one list that have one place in its entries, in order.
        places: dimensions of parameters, each as long as there are entries; a longer one begins with them.
        count: how many entries there are.
        groups: of how many groups of neighbours they are, whose entries stay together; 1 where any may change places.
    """

    stacks: Mapping[str, tuple[str, ...]]
    places: tuple[Place, ...]
    count: int
    groups: int = 1

    @property
    def first(self) -> str:
        """The name of its first parameter, or stack."""
        return next(iter(self.stacks), None) or self.places[0][0]

    @property
    def names(self) -> set[str]:
        """The names of all its parameters."""
        return {name for entries in self.stacks.values() for name in entries} | {name for name, _ in self.places}


def proposed(traced: Traced) -> list[Bundle]:
    """The lists of modules or parameters, and the tensors of a module, whose entries may be experts."""
    return [one for one in (*_lists(traced), *_taken(traced)) if _are_beside(traced, one)]


def _lists(traced: Traced) -> Iterator[Bundle]:
    """The numbered lists of modules, or of parameters, whose entries have parameters of the same names and shapes.

    There must be a dimension of that length outside of it.
    """
    numbered: dict[tuple[str, str], dict[int, dict[str, str]]] = {}
    for name in traced.state:
        words = name.split(".")
        for place, word in enumerate(words):
            if match := _NUMBERED.match(word):
                stack = ".".join((*words[:place], f"{match['stem']}*", *words[place + 1 :]))
                entries = numbered.setdefault((".".join(words[:place]), match["stem"]), {})
                entries.setdefault(int(match["number"]), {})[stack] = name
    lengths: dict[int, set[str]] = {}
    for name, tensor in traced.state.items():
        for length in tensor.shape:
            lengths.setdefault(length, set()).add(name)
    for entries in numbered.values():
        numbers = sorted(entries)
        names = [entries[number] for number in numbers]
        if len(names) < 2 or numbers[0] > 1 or numbers[-1] - numbers[0] != len(names) - 1:
            continue
        own = {name for entry in names for name in entry.values()}
        shapes = [{stack: traced.state[name].shape for stack, name in entry.items()} for entry in names]
        if lengths.get(len(names), set()) - own and all(shape == shapes[0] for shape in shapes):
            yield Bundle({stack: tuple(entry[stack] for entry in names) for stack in names[0]}, (), len(names))


def _taken(traced: Traced) -> Iterator[Bundle]:
    """The parameters of each module whose entries along one dimension, or the first of them, are taken one by one.

    Which are taken may depend on what a router chose, so that some are left out.
    """
    by_module: dict[str, dict[int, list[Place]]] = {}
    for name, node in _nodes_of(traced).items():
        taken = _selected(node)
        dims = {dim for dim, _ in taken}
        if len(dims) == 1 and len(taken) > 1 and len(shape := traced.state[name].shape) > 1:
            dim = dims.pop() % len(shape)
            by_module.setdefault(name.rpartition(".")[0], {}).setdefault(shape[dim], []).append((name, dim))
    for by_length in by_module.values():
        for length, places in by_length.items():
            yield Bundle({}, tuple(places), length)
        if len(by_length) > 1:
            yield Bundle({}, tuple(place for places in by_length.values() for place in places), min(by_length))


def _selected(node: fx.Node) -> dict[tuple[int, int], list[fx.Node]]:
    """By dimension and number, the nodes that are one entry of what a node computes; empty where it is used else."""
    found: dict[tuple[int, int], list[fx.Node]] = {}
    for user in node.users:
        operation = operation_of(user)
        if operation in _SAME:
            for key, nodes in (inside := _selected(user)).items():
                found.setdefault(key, []).extend(nodes)
            if not inside:
                return {}
        elif operation == "select" and isinstance(user.args[1], int) and isinstance(user.args[2], int):
            found.setdefault((user.args[1], user.args[2]), []).append(user)
        elif operation == "unbind":
            dim = user.args[1] if len(user.args) > 1 else 0
            for part in user.users:
                if not isinstance(dim, int) or operation_of(part) != "getitem" or not isinstance(part.args[1], int):
                    return {}
                found.setdefault((dim, part.args[1]), []).append(part)
        else:
            return {}
    return found


def _are_beside(traced: Traced, bundle: Bundle) -> bool:
    """True if the second entry does not read what the first computes, as one layer reads another."""
    nodes = _nodes_of(traced)
    starts: list[set[fx.Node]] = [set(), set()]
    for entries in bundle.stacks.values():
        for start, name in zip(starts, entries, strict=False):
            start.add(nodes[name])
    for name, _ in bundle.places:
        for start, (_, found) in zip(starts, sorted(_selected(nodes[name]).items()), strict=False):
            start.update(found)
    first, second = map(_behind, starts)
    direct = {user for start in starts for node in start for user in (node, *_aliases(node))}
    for node in first & second:
        if not any(source in first and source in second for source in node.all_input_nodes):
            reads_parameter = any(source in direct for source in node.all_input_nodes)
            if operation_of(node).rstrip("_") not in _MEETING or reads_parameter:
                return False
    return True


def _behind(start: set[fx.Node]) -> set[fx.Node]:
    """All nodes that depend on some, but the output."""
    found, ahead = set(start), list(start)
    while ahead:
        for user in ahead.pop().users:
            if user not in found and user.op != "output":
                found.add(user)
                ahead.append(user)
    return found


def _aliases(node: fx.Node) -> Iterator[fx.Node]:
    for user in node.users:
        if operation_of(user) in _SAME:
            yield user
            yield from _aliases(user)


def _nodes_of(traced: Traced) -> dict[str, fx.Node]:
    """The graph's argument that each parameter is."""
    arguments = (node for node in traced.graph.graph.nodes if node.op == "placeholder")
    return dict(zip(traced.state, arguments, strict=False))
