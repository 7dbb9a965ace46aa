"""Weight matching: closed form where spaces are uncoupled, block coordinate ascent where they are coupled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fusionlab.matching.blocks import Block, blocks, waves
from fusionlab.matching.groups import solve
from fusionlab.matching.hidden_units import solve_units, unit_factors
from fusionlab.matching.keeping import IN_MEMORY, Keeper
from fusionlab.matching.nested import NestedAssignment
from fusionlab.matching.options import MatchOptions
from fusionlab.matching.pair import Pair
from fusionlab.matching.problems import Problem, correlate_inner, correlate_permutation
from fusionlab.matching.solvers import Correlation, Rescale
from fusionlab.matching.starts.registry import find_start
from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.types import State

# Correlations of heads are solved many layers at a time, up to this many float64 numbers.
BATCH_ENTRIES = 2**25


def match_weights(source: State, anchor: State, blueprint: Blueprint, options: MatchOptions) -> Alignment:
    """The alignment that brings a source's weights closest to an anchor's.

    Spaces that no parameter couples are each solved once, to their global optimum (the paper's Algorithm 1 for
    rotations and Eq. 7 for feed-forward units). Coupled ones are solved in turn with the others held fixed; the
    distance never rises.

    Args:
        source: parameters by name; not modified.
        anchor: parameters by name, of the same blueprint, on the same device.
        blueprint: of both models.
        options: what to match; its gauge is the caller's business, both models are taken as they are.

    Returns:
        An alignment for the source.
    """
    return find_start(options.start).function(Pair(source, anchor, blueprint), options)


# From coupled blocks in waves and the problem, what is known before the first pass: an alignment to start from, and
# the names of the spaces that it leaves open.
Known = Callable[[Sequence[Sequence[Block]], Problem], tuple[Alignment, frozenset[str]]]


def ascent(pair: Pair, options: MatchOptions, known: Known) -> Alignment:
    """The alignment that block coordinate ascent ends in; for starts.

    Args:
        pair: the two models.
        options: what to match.
        known: where to start; asked only where spaces are coupled, as others are solved exactly.
    """
    blueprint = pair.blueprint
    spaces = options.select(blueprint)
    if not spaces:
        return Alignment.identity(blueprint)
    groups = waves(blocks(spaces, blueprint), blueprint)
    touched = blueprint.touching(space.name for space in spaces)
    models: list[State] = [{name: workable(state[name]) for name in touched} for state in (pair.source, pair.anchor)]
    if options.relative:
        models = rescaled(models, options.relative, pair.keeper)
    problem = Problem(blueprint, models[0], models[1], keeper=pair.keeper)
    with torch.no_grad():
        if len(groups) == 1:
            return Alignment(blueprint, _solve(groups[0], problem, options.rescale))
        return _ascend(groups, problem, options, *known(groups, problem))


def names_of(groups: Sequence[Sequence[Block]]) -> frozenset[str]:
    """The names of all spaces of some blocks."""
    return frozenset(name for group in groups for block in group for name in block.names)


def rescaled(states: Sequence[State], power: float, keeper: Keeper = IN_MEMORY) -> list[State]:
    """The models with every module's parameters divided by a power of the length that they have in all of them.

    Args:
        states: parameters by name, one mapping for each model; not modified.
        power: see `MatchOptions.relative`.
        keeper: of the result; one that keeps it where the states are has these no longer.

    Returns:
        Parameters in float32 or better; every module by the same factor in all models.
    """
    lengths: dict[str, float] = {}
    for state in states:
        squares: dict[str, float] = {}
        for name, x in state.items():
            squares[_module(name)] = squares.get(_module(name), 0.0) + float(x.double().square().sum())
        for module, square in squares.items():
            lengths[module] = lengths.get(module, 1.0) * square ** (0.5 / len(states))
    factors = {module: length**-power if length > 0 else 1.0 for module, length in lengths.items()}

    def shortened(state: State) -> State:
        return keeper.changed(state, state, lambda name: factors[_module(name)] * workable(state[name]))

    return [keeper.settled(shortened(state)) for state in states]


def _module(parameter: str) -> str:
    return parameter.rpartition(".")[0]


def _ascend(
    groups: Sequence[Sequence[Block]],
    problem: Problem,
    options: MatchOptions,
    alignment: Alignment,
    unsolved: frozenset[str],
) -> Alignment:
    """Block coordinate ascent over coupled spaces, from an alignment; then the distance never rises.

    What is unsolved is solved in the first pass from what is known by then: parameters that run from it to fixed axes
    (tokens, pixels, positions, labels), to spaces that are not matched, or to spaces already solved.
    """
    start = squared_distance(problem.source, problem.anchor)
    problem = problem.moved(alignment).settled()
    before = squared_distance(problem.source, problem.anchor)
    for sweep in range(options.sweeps):
        for group in groups:
            step = Alignment(problem.blueprint, _solve(group, replace(problem, unknown=unsolved), options.rescale))
            problem = problem.moved(step).settled()
            alignment = step.compose(alignment)
            unsolved -= {name for block in group for name in block.names}
        after = squared_distance(problem.source, problem.anchor)
        if sweep > 0 and before - after <= 1e-9 * before:
            break
        before = after
    reached = squared_distance(problem.source, problem.anchor)
    return alignment if reached < start else Alignment.identity(problem.blueprint)


def squared_distance(first: State, second: State, names: Iterable[str] | None = None) -> float:
    """Squared Euclidean distance between two models' parameters, summed in float64."""
    chosen = first if names is None else names
    return sum(float((first[name].double() - second[name].double()).square().sum()) for name in chosen)


def squared_length(state: State, names: Iterable[str] | None = None) -> float:
    """Squared Euclidean length of a model's parameters, summed in float64."""
    return sum(float(state[name].double().square().sum()) for name in (state if names is None else names))


def _solve(group: Sequence[Block], problem: Problem, rescale: Rescale) -> dict[str, Tensor]:
    """The elements of uncoupled blocks."""
    elements = solve_units([block for block in group if block.is_units], problem, rescale)
    # Heads are assigned by what rotations alone can do, unless rotation and scale are wanted together.
    first: Rescale = "joint" if rescale == "joint" else "off"
    for batch in _batches([block for block in group if not block.is_units], problem):
        groups = [space.group for space in batch.blocks[0].inner]
        paired = batch.blocks[0].permutation is not None
        solved = [
            solve(g, correlation, first if paired else rescale)
            for g, correlation in zip(groups, batch.correlations, strict=True)
        ]
        for position, block in enumerate(batch.blocks):
            correlations = [_pick(correlation, position) for correlation in batch.correlations]
            found = [(element[position], value[position]) for element, value in solved]
            elements.update(_assemble(block, found, correlations, problem, rescale))
    return elements


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
        chosen = {space.name: element}
        if bool(certain.all()) or _shortens(block, chosen, problem):
            return chosen
        return {space.name: torch.where(certain, element, identity)}
    direct, _ = correlate_permutation(problem, block)
    value = 2 * direct.double()
    for _, values in found:
        value = value + values
    chosen = NestedAssignment(problem, block, known=value / 2).best()
    pairs = _paired(chosen[block.permutation.name])
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
        return chosen if _shortens(block, chosen, problem) else {}
    same = _paired(block.permutation.group.identity(block.permutation.copies))
    still = 2 * direct.double()[same].sum() + torch.stack([c.unchanged()[same].sum() for c in correlations]).sum()
    rounding = torch.stack([_rounding(c, problem)[same].sum() for c in correlations]).sum()
    return chosen if total - still > rounding or _shortens(block, chosen, problem) else {}


def _paired(order: Tensor) -> tuple[Tensor, ...]:
    """The places of the pairs that permutations of shape ``(*copies, n)`` make, in tables ``(*copies, n, n, ...)``."""
    copies = (torch.arange(count).reshape(-1, *[1] * (order.ndim - dim - 1)) for dim, count in enumerate(order.shape))
    return (*copies, order)


def _rounding(correlation: Correlation, problem: Problem) -> Tensor:
    """The most that rounding may put off the difference of two values, shape ``(...)``."""
    example = next(iter(problem.source.values()))
    lengths = (correlation.primal_norm + correlation.dual_norm).sum(-1)
    return 1e4 * torch.finfo(example.dtype).eps * lengths


def _shortens(block: Block, elements: Mapping[str, Tensor], problem: Problem) -> bool:
    """True if elements of one block bring what is known of the source closer to the anchor, measured on the parameters.

    Near its optimum a gain is the difference of two large values and drowns in their rounding; distances do not.
    """
    before, after = (
        sum(
            float((a.view.double() - b.view.double()).square().sum())
            for a, b in side.stretches(block.names, block.names)
        )
        for side in (problem, problem.moved(Alignment(problem.blueprint, elements)))
    )
    return after < before


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


def workable(tensor: Tensor) -> Tensor:
    """A parameter in float32 or better."""
    return tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32))
