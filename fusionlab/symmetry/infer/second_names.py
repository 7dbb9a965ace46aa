"""Tied parameters: what is said of one name holds for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import nn

from fusionlab.symmetry.blueprint import Blueprint


def second_names(model: nn.Module) -> dict[str, str]:
    """The further names of tied parameters, and the first name of each."""
    first = {id(p): name for name, p in model.named_parameters()}
    return {n: first[id(p)] for n, p in model.named_parameters(remove_duplicate=False) if first[id(p)] != n}


def with_second_names(blueprint: Blueprint, same: Mapping[str, str]) -> Blueprint:
    """The blueprint in which what is said of a tied parameter's first name is said of all its names."""
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
        after_folding=None if after is None else with_second_names(after, same),
    )
