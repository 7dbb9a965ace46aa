"""The parts of a blueprint that can be matched one after the other, each as a blueprint of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from scipy.cluster.hierarchy import DisjointSet

from fusionlab.symmetry.axes import spaces_of
from fusionlab.symmetry.blueprint import Blueprint

Entry = TypeVar("Entry")


def parts(blueprint: Blueprint, spaces: Collection[str], alike: Iterable[Collection[str]] = ()) -> list[Blueprint]:
    """Blueprints of disjoint sets of parameters, so that what is done to one of them looks at no other.

    Parameters belong together if one of some spaces acts on them, if folding moves numbers between them, or if they
    are tied. An alignment of a part that acts on those spaces alone does to its parameters what the alignment of all
    parts does to them, folding and clearing of biases included.

    Args:
        blueprint: of the whole model, in the gauge that it is matched in.
        spaces: those that are matched, or that the gauge looks at.
        alike: names in a model that stand for one parameter each.

    Returns:
        In the order of their first parameters; together they have every parameter once. A part has every space that
        acts on its parameters, also those that run through other parts and are not among `spaces`.
    """
    together = DisjointSet(blueprint.parameters)
    stack_of = {entry: stack for stack, entries in blueprint.stacks.items() for entry in entries}
    tied = ([stack_of.get(name, name) for name in names] for names in alike)
    for names in (*_acted_on(blueprint, spaces), *_folded(blueprint), *tied):
        first, *others = names
        for other in others:
            together.merge(first, other)
    found: dict[str, list[str]] = {}
    for name in blueprint.parameters:
        found.setdefault(together[name], []).append(name)
    known = _Known(blueprint)
    return [known.part(names) for names in found.values()]


def _acted_on(blueprint: Blueprint, spaces: Collection[str]) -> Iterator[list[str]]:
    """The parameters of each space, with the biases that clearing adds to."""
    for space in spaces:
        names = list(blueprint.touching([space]))
        if blueprint.unbiased:
            names += [blueprint.biases[name] for name in names if name in blueprint.biases]
        if names:
            yield names


def _folded(blueprint: Blueprint) -> Iterator[list[str]]:
    """The parameters that folding moves numbers between, by norm and by layer scale."""
    if not blueprint.folded:
        return
    for norm in blueprint.norms:
        readers = [reader.weight for reader in norm.readers]
        biases = [blueprint.biases[name] for name in readers if name in blueprint.biases]
        yield [norm.weight, *([] if norm.bias is None else [norm.bias]), *readers, *biases]
    for scale in blueprint.layer_scales:
        yield [
            scale.scale,
            scale.weight,
            *([blueprint.biases[scale.weight]] if scale.weight in blueprint.biases else []),
        ]


class _Known:
    """A blueprint whose entries are found by the parameter that they are of, so that parts cost what they hold."""

    def __init__(self, blueprint: Blueprint) -> None:
        self.blueprint = blueprint
        self.places = {name: place for place, name in enumerate(blueprint.spaces)}
        self.norms = _grouped((norm.weight, norm) for norm in blueprint.norms)
        self.scales = _grouped((scale.scale, scale) for scale in blueprint.layer_scales)
        self.means = _grouped((name, (name, dim)) for name, dim in blueprint.unseen_means)

    def part(self, names: Sequence[str]) -> Blueprint:
        """The blueprint of some of the parameters, in their order."""
        whole, own = self.blueprint, set(names)
        parameters = {name: whole.parameters[name] for name in names}
        acting = {space for axes in parameters.values() for axis in axes for space in spaces_of(axis)}
        acting |= {outer for space in acting for outer in whole.spaces[space].index}
        return replace(
            whole,
            spaces={space: whole.spaces[space] for space in sorted(acting, key=self.places.__getitem__)},
            parameters=parameters,
            outputs={},
            biases={name: bias for name in names if (bias := whole.biases.get(name)) in own and bias is not None},
            norms=tuple(norm for name in names for norm in self.norms.get(name, ())),
            layer_scales=tuple(scale for name in names for scale in self.scales.get(name, ())),
            unseen_means=tuple(mean for name in names for mean in self.means.get(name, ())),
            stacks={name: whole.stacks[name] for name in names if name in whole.stacks},
            same={name: first for name in names if (first := whole.same.get(name)) in own and first is not None},
            after_folding=None,
        )


def _grouped(pairs: Iterable[tuple[str, Entry]]) -> dict[str, list[Entry]]:
    """Values by their key, in order."""
    found: dict[str, list[Entry]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
