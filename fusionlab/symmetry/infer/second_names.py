"""Tensors of several names, tied or of one module in several places: what is said of one name holds for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import nn

from fusionlab.symmetry.blueprint import Blueprint


def second_names(model: nn.Module) -> dict[str, str]:
    """The further names of parameters and persistent buffers that have several, and the first name of each."""
    state = model.state_dict(keep_vars=True)
    first = {id(x): name for name, x in (*model.named_parameters(), *model.named_buffers()) if name in state}
    return {name: first[id(x)] for name, x in state.items() if first.get(id(x), name) != name}


def with_second_names(blueprint: Blueprint, same: Mapping[str, str]) -> Blueprint:
    """The blueprint in which what is said of a first name is said of all its names.

    Args:
        blueprint: its norms and layer scales may know first names only.
        same: further names, and the first name of each.
    """
    further: dict[str, list[str]] = {}
    for name, first in same.items():
        further.setdefault(first, []).append(name)

    def paired(weight: str, bias: str) -> dict[str, str]:
        """A layer under another name has a bias under that name too."""
        names = [weight, *further.get(weight, ())]
        biases = [bias, *further.get(bias, ())]
        return {w: biases[min(i, len(biases) - 1)] for i, w in enumerate(names)}

    norms = tuple(
        replace(
            norm,
            readers=tuple(
                replace(reader, weight=name)
                for reader in norm.readers
                for name in (reader.weight, *further.get(reader.weight, ()))
            ),
        )
        for norm in blueprint.norms
    )
    after = blueprint.after_folding
    return replace(
        blueprint,
        norms=norms,
        biases={w: b for weight, bias in blueprint.biases.items() for w, b in paired(weight, bias).items()},
        unseen_means=tuple((n, dim) for name, dim in blueprint.unseen_means for n in (name, *further.get(name, ()))),
        same=same,
        after_folding=None if after is None else with_second_names(after, same),
    )


def of_names(blueprint: Blueprint, same: Mapping[str, str]) -> Blueprint:
    """The blueprint of a model with these further names, all of which it describes already."""
    after = blueprint.after_folding
    return replace(blueprint, same=same, after_folding=after and of_names(after, same))
