"""Factors of units that must be solved together, and what the stretches say that they act on."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fusionlab.matching.blocks import Block
from fusionlab.matching.joint_factors import Powers
from fusionlab.matching.problems import Problem
from fusionlab.matching.signed_units import components
from fusionlab.symmetry import Blueprint, Space
from fusionlab.symmetry.axes import powers


def sets_of_factors(block: Block, blueprint: Blueprint) -> list[list[Space]]:
    """The factors inside of a block, each with those that it shares stretches with."""
    factors = {space.name: space for space in block.spaces if space.group.is_factor}
    keys = dict.fromkeys([frozenset({name}) for name in factors])
    keys |= {frozenset(found): None for found in _acting(blueprint, factors) if len(found) > 1}
    parts = [set().union(*part) for part in components(list(keys))]
    return [[space for space in factors.values() if space.name in part] for part in parts]


def is_plain(space: Space, blueprint: Blueprint) -> bool:
    """True if a factor acts by itself or by its inverse, and by no other power."""
    return all(abs(found[space.name]) == 1 for found in _acting(blueprint, [space.name]))


def _acting(blueprint: Blueprint, names: Sequence[str] | dict[str, Space]) -> list[dict[str, int]]:
    """The powers of some factors on each stretch that one of them acts on."""
    found = (one for axes in blueprint.touching(names).values() for axis in axes for one in powers(axis))
    cut = ({name: power for name, power in one.items() if name in names} for one in found)
    return [one for one in cut if one]


def terms_of(moved: Problem, block: Block, some: Sequence[Space]) -> dict[Powers, tuple[Tensor, Tensor]]:
    """The products of anchor and source, and the squared lengths of the source, by the powers of factors on stretches.

    Args:
        moved: the two models, the source moved by the block's permutations already.
        block: that the factors are inside of.
        some: factors, all with copies by the same spaces.

    Returns:
        Two numbers for each copy, shape ``(*copies)``, float64, by the powers of all factors that act on a stretch.
    """
    names = [space.name for space in some]
    empty = next(iter(moved.anchor.values())).new_zeros(some[0].copies, dtype=torch.float64)
    found: dict[Powers, tuple[Tensor, Tensor]] = {}
    for at, places in moved.places(names, block.names).items():
        acting = list(powers(moved.blueprint.parameters[at[0]][at[1]]))
        for place in places:
            key = tuple(sorted((name, power) for name, power in acting[place].items() if name in names))
            if not key:
                continue
            c, n = found.get(key, (empty, empty))
            for first, second in moved.cut(at, (place,)):
                a, b = (leaf.by_copies(some[0].index).flatten(len(some[0].index)).double() for leaf in (first, second))
                c, n = c + (a * b).sum(-1), n + a.square().sum(-1)
            found[key] = c, n
    totals = moved.total(block, *(x for pair in found.values() for x in pair))
    return {key: (totals[2 * i], totals[2 * i + 1]) for i, key in enumerate(found)}
