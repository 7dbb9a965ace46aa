"""The parts of a blueprint that can be matched one after the other, each as a blueprint of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from scipy.cluster.hierarchy import DisjointSet

from fusionlab.symmetry.axes import spaces_of
from fusionlab.symmetry.blueprint import Blueprint


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
    return [_part(blueprint, names) for names in found.values()]


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


def _part(blueprint: Blueprint, names: Collection[str]) -> Blueprint:
    """The blueprint of some of the parameters."""
    own = set(names)
    parameters = {name: axes for name, axes in blueprint.parameters.items() if name in own}
    acting = {space for axes in parameters.values() for axis in axes for space in spaces_of(axis)}
    acting |= {outer for space in acting for outer in blueprint.spaces[space].index}
    return replace(
        blueprint,
        spaces={name: space for name, space in blueprint.spaces.items() if name in acting},
        parameters=parameters,
        outputs={},
        biases={weight: bias for weight, bias in blueprint.biases.items() if weight in own and bias in own},
        norms=tuple(norm for norm in blueprint.norms if norm.weight in own),
        layer_scales=tuple(scale for scale in blueprint.layer_scales if scale.scale in own),
        unseen_means=tuple((name, dim) for name, dim in blueprint.unseen_means if name in own),
        stacks={stack: entries for stack, entries in blueprint.stacks.items() if stack in own},
        same={name: first for name, first in blueprint.same.items() if name in own and first in own},
        after_folding=None,
    )
