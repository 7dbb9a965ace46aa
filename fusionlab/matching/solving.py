"""The elements of blocks that are not coupled with each other, while the rest of the models is held fixed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fusionlab.matching.blocks import Block
from fusionlab.matching.factors_around import solve_around
from fusionlab.matching.groups import solve
from fusionlab.matching.hidden_units import solve_units, unit_factors
from fusionlab.matching.nested import NestedAssignment
from fusionlab.matching.pairs import paired, shortens
from fusionlab.matching.problems import Problem, correlate_inner, correlate_permutation
from fusionlab.matching.solvers import Correlation, Rescale
from fusionlab.symmetry import Alignment
from fusionlab.symmetry.groups import Group

# Correlations of heads are solved many layers at a time, up to this many float64 numbers.
BATCH_ENTRIES = 2**25


def solved(group: Sequence[Block], problem: Problem, rescale: Rescale) -> dict[str, Tensor]:
    """The elements of uncoupled blocks, of those whose parameters lie here or in several processes.

    Args:
        group: blocks of which none is coupled with another.
        problem: the two models.
        rescale: as in `fusionlab.matching.groups.solve`.
    """
    elements = _solved(
        [block for block in group if not problem.is_shared(block) and not problem.is_elsewhere(block)], problem, rescale
    )
    for block in group:
        # One after the other: all processes add up the same correlation at the same time.
        if problem.is_shared(block):
            elements |= _solved([block], problem, rescale)
    return elements


def _solved(group: Sequence[Block], problem: Problem, rescale: Rescale) -> dict[str, Tensor]:
    """The elements of uncoupled blocks, all of which lie here, or of one that several processes share."""
    elements = solve_units([block for block in group if block.is_units], problem, rescale)
    # Heads are assigned by what rotations alone can do, unless rotation and scale are wanted together.
    first: Rescale = "joint" if rescale == "joint" else "off"
    for block in group:
        if block.around:
            elements |= solve_around(block, problem, rescale)
    for batch in _batches([block for block in group if not block.is_units and not block.around], problem):
        groups = [space.group for space in batch.blocks[0].inner]
        how = rescale if batch.blocks[0].permutation is None else first
        solutions = problem.agreed(batch.blocks[0], partial(_solutions, groups, batch.correlations, how))
        for position, block in enumerate(batch.blocks):
            correlations = [_pick(correlation, position) for correlation in batch.correlations]
            found = [(element[position], value[position]) for element, value in solutions]
            elements.update(_assemble(block, found, correlations, problem, rescale))
    return elements


def _solutions(
    groups: Sequence[Group], correlations: Sequence[Correlation], rescale: Rescale
) -> list[tuple[Tensor, Tensor]]:
    """The elements and values of inner spaces."""
    return [solve(group, correlation, rescale) for group, correlation in zip(groups, correlations, strict=True)]


def _assemble(
    block: Block,
    found: Sequence[tuple[Tensor, Tensor]],
    correlations: Sequence[Correlation],
    problem: Problem,
    rescale: Rescale,
) -> dict[str, Tensor]:
    """One block's elements from the solutions of its inner spaces, for each copy or for each pair of copies."""
    if block.permutation is None:
        (space,), (element, value) = block.inner, found[0]
        identity = space.group.identity(space.copies).to(element)
        certain = value - correlations[0].unchanged() > _rounding(correlations[0], problem)
        certain = certain.reshape(value.shape + (1,) * (element.ndim - value.ndim))
        sure = problem.agreed(block, lambda: certain)
        chosen = {space.name: element}
        if bool(sure.all()) or shortens(block, chosen, problem):
            return chosen
        return {space.name: torch.where(sure, element, identity)}
    direct, _ = correlate_permutation(problem, block)
    value = 2 * direct.double()
    for _, values in found:
        value = value + values
    chosen = NestedAssignment(problem, block, known=value / 2).best()
    pairs = paired(chosen[block.permutation.name])
    for space, (element, _) in zip(block.inner, found, strict=True):
        chosen[space.name] = element[pairs]
    total = value[pairs].sum()
    if block.inner and rescale == "sequential":
        total = 2 * direct.double()[pairs].sum()
        for space, correlation in zip(block.inner, correlations, strict=True):
            chosen[space.name], values = solve(space.group, _pick(correlation, pairs), rescale)
            total = total + values.sum()
    if block.nested:
        moved = replace(problem.moved(Alignment(problem.blueprint, chosen)), unknown=problem.unknown - block.names)
        chosen |= unit_factors(block.nested, moved, rescale)
        return chosen if shortens(block, chosen, problem) else {}
    same = paired(block.permutation.group.identity(block.permutation.copies))
    still = 2 * direct.double()[same].sum() + torch.stack([c.unchanged()[same].sum() for c in correlations]).sum()
    rounding = torch.stack([_rounding(c, problem)[same].sum() for c in correlations]).sum()
    return chosen if total - still > rounding or shortens(block, chosen, problem) else {}


def _rounding(correlation: Correlation, problem: Problem) -> Tensor:
    """The most that rounding may put off the difference of two values, shape ``(...)``."""
    example = next(iter(problem.source.values()))
    lengths = (correlation.primal_norm + correlation.dual_norm).sum(-1)
    return 1e4 * torch.finfo(example.dtype).eps * lengths


@dataclass(frozen=True)
class _Batch:
    """Blocks of one shape whose inner correlations are stacked and solved together."""

    blocks: Sequence[Block]
    correlations: Sequence[Correlation]  # one for each inner space, stacked over the blocks


def _batches(found: Sequence[Block], problem: Problem) -> Iterable[_Batch]:
    """Stack the correlations of blocks of one shape, as many at a time as memory allows."""
    by_shape: dict[tuple[Any, ...], list[Block]] = {}
    for block in found:
        shape = (block.permutation and block.permutation.group, *((s.group, s.copies) for s in block.inner))
        by_shape.setdefault(shape, []).append(block)
    for alike in by_shape.values():
        entries = sum(s.count * s.group.size**2 for s in alike[0].inner)
        entries *= 1 if alike[0].permutation is None else alike[0].permutation.group.size
        step = max(1, BATCH_ENTRIES // max(1, entries))
        for start in range(0, len(alike), step):
            chunk = alike[start : start + step]
            stacks = []
            for position in range(len(chunk[0].inner)):
                parts = [correlate_inner(problem, block, block.inner[position]) for block in chunk]
                stacks.append(
                    Correlation(*(torch.stack([getattr(part, field) for part in parts]) for field in _FIELDS))
                )
            yield _Batch(chunk, stacks)


_FIELDS = ("primal", "dual", "primal_norm", "dual_norm")


def _pick(correlation: Correlation, index: int | tuple[Tensor, ...]) -> Correlation:
    return Correlation(*(getattr(correlation, field)[index] for field in _FIELDS))
