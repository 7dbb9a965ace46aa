"""From what the models compute: residual streams are brought together by activations, the rest by weights."""

from dataclasses import replace
from functools import partial

from fusionlab.errors import InputError
from fusionlab.matching.activations import match_activations
from fusionlab.matching.options import ACTIVATIONS, ANNEALED, MatchOptions
from fusionlab.matching.pair import Pair
from fusionlab.matching.starts.registry import start
from fusionlab.matching.weights import match_weights, rescaled, squared_distance
from fusionlab.symmetry import Alignment
from fusionlab.symmetry.roles import Role


@start(ACTIVATIONS, needs=("activations",))
def from_activations(pair: Pair, options: MatchOptions) -> Alignment:
    """Residual streams from activations; then block coordinate ascent on weights over all spaces, from there.

    The distance of the weights is never above what the streams' start leaves.

    Raises:
        InputError: there are no activations, or they are not of the same rows or maps.
    """
    if pair.activations is None:
        raise InputError(f"start {ACTIVATIONS!r} compares activations, and there are none; expected inputs to run on")
    blueprint, anchor = pair.blueprint, pair.anchor
    roles = tuple(dict.fromkeys(space.role for space in options.select(blueprint)))
    streams = tuple(role for role in roles if role in (Role.RESIDUAL, Role.RESIDUAL_SCALE))
    others = tuple(role for role in roles if role not in streams)
    first, second = pair.activations
    known = pair.team.agreed(
        lambda: dict(match_activations(first, second, blueprint, replace(options, spaces=streams)).elements)
    )
    found = Alignment(blueprint, known)
    twin = found.apply(pair.source)
    # What is coupled beside the streams has to start somewhere too.
    by_weights = replace(options, start=ANNEALED)
    before = float("inf")
    for _ in range(options.sweeps):
        for part in (others, streams):
            step = match_weights(twin, anchor, blueprint, replace(by_weights, spaces=part), pair.team)
            twin, found = step.apply(twin), step.compose(found)
        moved, goal = rescaled([twin, anchor], options.relative)
        after = pair.team.agreed(partial(squared_distance, moved, goal, blueprint.parameters))
        if not streams or after >= (1 - 1e-9) * before:
            break
        before = after
    return found
