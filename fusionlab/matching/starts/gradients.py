"""From what the models compute and what their outputs hang on: channels and units by correlation, then by weights."""

from dataclasses import replace

from fusionlab.errors import InputError
from fusionlab.matching.correlation import correlated
from fusionlab.matching.options import ALL, GRADIENTS, KNOWN, MatchOptions
from fusionlab.matching.pair import Pair
from fusionlab.matching.starts.registry import start
from fusionlab.matching.weights import match_weights
from fusionlab.symmetry import Alignment
from fusionlab.symmetry.groups import Signs
from fusionlab.symmetry.roles import Role

# What is told by correlations. Heads are told no better by them than by weights.
TOLD = (Role.RESIDUAL, Role.UNITS)


@start(GRADIENTS, needs=("activations", "gradients"))
def from_gradients(pair: Pair, options: MatchOptions) -> Alignment:
    """Residual streams and hidden units permuted by correlations of activations and of gradients; the rest by weights.

    A channel is told by what it is on each token, and as well by how the outputs hang on it there. Both keep the order
    that they are given: weights would tell it worse. A stream that could turn is permuted too. Units that may change
    their sign are left to weights, since a correlation has a sign.

    Raises:
        InputError: there are no activations with gradients, or they are not of the same rows or maps.
    """
    if pair.activations is None or not all(one.gradients for one in pair.activations):
        raise InputError(f"start {GRADIENTS!r} compares gradients, and there are none; expected inputs to run on")
    blueprint, (first, second) = pair.blueprint, pair.activations
    chosen = options.select(blueprint)
    signed = {name for space in blueprint.spaces.values() if isinstance(space.group, Signs) for name in space.index}
    told = [space for space in chosen if space.role in TOLD and space.name not in signed]
    elements = pair.team.agreed(lambda: correlated(first, second, blueprint, told))
    found = Alignment(blueprint, elements)
    # What no linear map reads or writes, such as the units of an expert, has no correlations.
    left = [space for space in chosen if space.name not in elements]
    if not left:
        return found
    others = replace(blueprint, spaces={space.name: space for space in left})
    rest = replace(options, spaces=(ALL,), layers=ALL, start=KNOWN)
    step = match_weights(found.apply(pair.source), pair.anchor, others, rest, pair.team)
    return Alignment(blueprint, step.elements).compose(found)
