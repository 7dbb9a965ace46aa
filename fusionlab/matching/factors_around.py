"""Heads with a factor around what lies inside of them, such as a gain for each head beside the basis of its values.

Turning the factor's stretches round is no element of the basis inside, which acts on others as well. So all pairs of
heads are solved once for every choice of signs, by a source whose stretches are turned round by it, and each pair takes
its better one.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from fusionlab.matching.blocks import Block
from fusionlab.matching.groups import geometry, solve
from fusionlab.matching.hidden_units import unit_factors
from fusionlab.matching.nested import NestedAssignment
from fusionlab.matching.pairs import paired, shortens
from fusionlab.matching.problems import Problem, correlate_inner, correlate_permutation
from fusionlab.matching.solvers import Rescale
from fusionlab.symmetry import Alignment


def solve_around(block: Block, problem: Problem, rescale: Rescale) -> dict[str, Tensor]:
    """The elements of a block with factors around its inner spaces; none where they bring the models no closer.

    Args:
        block: one that lies in this process.
        problem: the two models.
        rescale: ``off`` for the joint optimum of the order, the signs and what keeps lengths inside; otherwise what may
            stretch is solved after that, one space after the other.
    """
    permutation = block.permutation
    assert permutation is not None
    plain = replace(block, around=())
    # What only a factor of this block makes unknown is known here.
    known = replace(problem, unknown=problem.unknown - {space.name for space in block.around})
    tables, choices = [], []
    signed = [space for space in block.around if geometry(space.group).is_assigned]
    for signs in product((1.0, -1.0), repeat=len(signed)):
        turned = {
            space.name: sign * space.group.identity(space.copies) for space, sign in zip(signed, signs, strict=True)
        }
        tables.append(_solutions(plain, known.moved(Alignment(problem.blueprint, turned))))
        choices.append(signs)
    values = torch.stack([value for value, _ in tables])
    value, which = values.max(0)
    chosen = NestedAssignment(known, plain, known=value / 2).best()
    pairs = paired(chosen[permutation.name])
    taken = which[pairs]
    for position, space in enumerate(block.inner):
        elements = torch.stack([found[position] for _, found in tables])
        chosen[space.name] = elements[(taken, *pairs)]
    for position, space in enumerate(signed):
        signs_of = torch.tensor([signs[position] for signs in choices], dtype=torch.float64)
        chosen[space.name] = signs_of[taken.cpu()].unsqueeze(-1)
    chosen |= _refined(block, problem, chosen, rescale)
    return chosen if shortens(block, chosen, problem) else {}


def _solutions(block: Block, problem: Problem) -> tuple[Tensor, list[Tensor]]:
    """The worth of each pair of heads, shape ``(*copies, n, n)``, and by inner space the elements that reach it."""
    value, found = 2 * correlate_permutation(problem, block)[0].double(), []
    for space in block.inner:
        element, gain = solve(space.group, correlate_inner(problem, block, space), "off")
        value = value + gain
        found.append(element)
    return value, found


def _refined(block: Block, problem: Problem, chosen: dict[str, Tensor], rescale: Rescale) -> dict[str, Tensor]:
    """The elements inside of heads once these are in order: of nested blocks, and of what may stretch, one by one."""
    assert block.permutation is not None
    moved = problem.moved(Alignment(problem.blueprint, chosen))
    found = Alignment(
        problem.blueprint,
        {space.name: chosen[space.name] for space in (*block.around, *block.inner) if space.name in chosen},
    )
    if rescale != "off":
        for space in block.inner:
            element, _ = solve(space.group, correlate_inner(moved, block, space, moved=True), rescale)
            step = Alignment(problem.blueprint, {space.name: element})
            moved, found = moved.moved(step), step.compose(found)
        step = Alignment(problem.blueprint, unit_factors([replace(block, nested=())], moved, rescale))
        moved, found = moved.moved(step), step.compose(found)
    nested = unit_factors(block.nested, replace(moved, unknown=moved.unknown - block.names), rescale)
    return {**found.elements, **nested}
