"""Weight matching: closed form where spaces are uncoupled, block coordinate ascent where they are coupled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fusionlab.matching.blocks import Block, blocks, waves
from fusionlab.matching.keeping import IN_MEMORY, Keeper
from fusionlab.matching.options import MatchOptions
from fusionlab.matching.pair import Pair
from fusionlab.matching.problems import Problem
from fusionlab.matching.sharing import share_of
from fusionlab.matching.solving import solved
from fusionlab.matching.starts.registry import find_start
from fusionlab.matching.team import ALONE, Team
from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.types import State

# Numbers whose copies in float64 lie in a processor's cache.
_TOGETHER = 2**18


def match_weights(
    source: State, anchor: State, blueprint: Blueprint, options: MatchOptions, team: Team = ALONE
) -> Alignment:
    """The alignment that brings a source's weights closest to an anchor's.

    Spaces that no parameter couples are each solved once, to their global optimum (the paper's Algorithm 1 for
    rotations and Eq. 7 for feed-forward units). Coupled ones are solved in turn with the others held fixed; the
    distance never rises.

    Args:
        source: parameters by name; not modified.
        anchor: parameters by name, of the same blueprint, on the same device.
        blueprint: of both models.
        options: what to match; its gauge is the caller's business, both models are taken as they are.
        team: processes that match the same models together.

    Returns:
        An alignment for the source, the same in all of them.
    """
    return find_start(options.start).function(Pair(source, anchor, blueprint, team=team), options)


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
    share = share_of(groups, blueprint, pair.source, pair.team)
    own = [name for name in touched if name in share.names]
    models: list[State] = [{name: workable(state[name]) for name in own} for state in (pair.source, pair.anchor)]
    if options.relative:
        models = rescaled(models, options.relative, pair.keeper)
    problem = Problem(blueprint, models[0], models[1], keeper=pair.keeper, share=share)
    with torch.no_grad():
        if len(groups) == 1:
            found = solved(groups[0], problem, options.rescale)
        else:
            found = dict(_ascend(groups, problem, options, *known(groups, problem)).elements)
    # Solved by one of the processes alone where there is too little to share.
    alone = pair.team if share.team is ALONE else ALONE
    return Alignment(blueprint, alone.agreed(lambda: share.joined(found)))


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
    start = _distance(problem)
    problem = problem.moved(alignment).settled()
    before = _distance(problem)
    for sweep in range(options.sweeps):
        for group in groups:
            step = Alignment(problem.blueprint, solved(group, replace(problem, unknown=unsolved), options.rescale))
            problem = problem.moved(step).settled()
            alignment = step.compose(alignment)
            unsolved -= {name for block in group for name in block.names}
        after = _distance(problem)
        if sweep > 0 and before - after <= 1e-9 * before:
            break
        before = after
    return alignment if _distance(problem) < start else Alignment.identity(problem.blueprint)


def _distance(problem: Problem) -> float:
    """The squared distance of two models, parameters of all processes counted."""
    return problem.sum_of(squared_distance(problem.source, problem.anchor))


def squared_distance(first: State, second: State, names: Iterable[str] | None = None) -> float:
    """Squared Euclidean distance between two models' parameters, summed in float64."""
    chosen = first if names is None else names
    parts = (zip(_parts(first[name]), _parts(second[name]), strict=True) for name in chosen)
    return sum(_squared(a.double() - b) for pairs in parts for a, b in pairs)


def squared_length(state: State, names: Iterable[str] | None = None) -> float:
    """Squared Euclidean length of a model's parameters, summed in float64."""
    chosen = state if names is None else names
    return sum(_squared(part.double()) for name in chosen for part in _parts(state[name]))


def _squared(numbers: Tensor) -> float:
    return float(torch.dot(numbers, numbers))


def _parts(tensor: Tensor) -> tuple[Tensor, ...]:
    """The numbers of a tensor, as many together as may be in float64 at a time."""
    return tensor.reshape(-1).split(_TOGETHER)


def workable(tensor: Tensor) -> Tensor:
    """A parameter in float32 or better."""
    return tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32))
