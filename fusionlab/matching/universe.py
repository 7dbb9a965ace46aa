"""Many models in one common basis: each matched to the mean of the others, none of them an anchor."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from fusionlab.matching.options import AS_IS, MatchOptions
from fusionlab.matching.team import ALONE, Team
from fusionlab.matching.weights import match_weights, rescaled, squared_distance, squared_length, workable
from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.types import State

# The most passes over all models.
ROUNDS = 100


def match_universe(
    states: Sequence[State], blueprint: Blueprint, options: MatchOptions, team: Team = ALONE
) -> list[Alignment]:
    """Alignments that bring several models closest to their mean.

    Generalised Procrustes analysis (Gower, 1975) over any group. The basis grows by one model at a time, each matched
    to the mean of those before; then each is matched to the mean of all others, in turn, until the summed squared
    distance to the mean of all stops falling. It never rises. Models are visited from the longest to the shortest,
    which no rotation and no permutation alters, so the order in which they are listed does not matter.

    Args:
        states: parameters by name, one mapping for each model, on one device; not modified.
        blueprint: of all models.
        options: what to match and how; the gauge is the caller's business, models are taken as they are.
        team: processes that match the same models together.

    Returns:
        An alignment for each model, in order. The common basis grows from that of the longest model.
    """
    names = tuple(blueprint.touching(space.name for space in options.select(blueprint)))
    twins: list[State] = rescaled([{name: state[name] for name in names} for state in states], options.relative)
    lengths = team.agreed(lambda: [squared_length(twin) for twin in twins])
    order = sorted(range(len(states)), key=lengths.__getitem__, reverse=True)
    alignments = [Alignment.identity(blueprint) for _ in states]
    plain = replace(options, relative=0.0)
    for position, index in enumerate(order[1:], start=1):
        goal = mean_state([twins[other] for other in order[:position]])
        alignments[index] = match_weights(twins[index], goal, blueprint, plain, team)
        twins[index] = _moved(twins[index], alignments[index])
    plain = replace(plain, start=AS_IS, sweeps=1)
    spread = team.agreed(lambda: spread_of(twins))
    for _ in range(ROUNDS):
        before = spread
        for index in order:
            goal = mean_state([twin for other, twin in enumerate(twins) if other != index])
            step = match_weights(twins[index], goal, blueprint, plain, team)
            trial = [_moved(twin, step) if other == index else twin for other, twin in enumerate(twins)]
            # Scales change a model's length, which the distance to the others does not know of.
            if (reached := team.agreed(partial(spread_of, trial))) < spread:
                twins, spread = trial, reached
                alignments[index] = step.compose(alignments[index])
        if before - spread <= 1e-6 * before:
            break
    return alignments


def mean_state(states: Sequence[State]) -> dict[str, Tensor]:
    """The mean of several models' parameters, in float32 or better."""
    return {name: torch.stack([workable(state[name]) for state in states]).mean(0) for name in states[0]}


def spread_of(states: Sequence[State]) -> float:
    """The summed squared distance of several models to their mean: what `match_universe` makes small."""
    mean = mean_state(states)
    return sum(squared_distance(state, mean) for state in states)


def _moved(state: State, alignment: Alignment) -> State:
    return {name: alignment.apply_to(name, x) for name, x in state.items()}
