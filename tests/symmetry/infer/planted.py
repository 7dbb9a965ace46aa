"""Random elements of what is inferred: applied to a state, and looked for by its weights alone."""

from dataclasses import replace

import torch
from torch import Tensor

from fusionlab.matching.options import MatchOptions
from fusionlab.matching.weights import match_weights, squared_distance
from fusionlab.symmetry import Alignment, Blueprint
from fusionlab.symmetry.biases import clear_biases
from fusionlab.symmetry.folding import fold
from tests.families.harness import length_preserving


def moved(state: dict[str, Tensor], alignment: Alignment) -> dict[str, Tensor]:
    """A state without what is no parameter (integers), moved."""
    touched = alignment.blueprint.touching(alignment.elements)
    return {name: alignment.apply_to(name, x) if name in touched else x for name, x in state.items()}


def gauged(state: dict[str, Tensor], description: Blueprint) -> dict[str, Tensor]:
    """A state in the gauge of a blueprint, with its stacks."""
    state = dict(description.stacked(state))
    if description.folded:
        state = fold(state, description)
    # A tied parameter is in this state by its first name alone.
    held = replace(description, unseen_means=tuple(mean for mean in description.unseen_means if mean[0] in state))
    return clear_biases(state, held) if description.unbiased else state


def distance_left(found: Blueprint, state: dict[str, Tensor]) -> float:
    """The share that matching by weights leaves of the distance between a state and itself moved by a random element.

    Args:
        found: what was inferred; its groups before and after folding are tried, and the worse one counts.
        state: every tensor by its first name, in float64, without integers.
    """
    worst, state = 0.0, dict(found.stacked(state))
    for description in (found, found.after_folding):
        if description is None:
            continue
        start = gauged(state, description)
        # Without tied names and integers, which the state does not hold.
        held = replace(description, parameters={name: description.parameters[name] for name in start})
        twin = moved(start, length_preserving(held))
        back = moved(twin, match_weights(twin, start, held, MatchOptions(spaces=("all",), rescale="off")))
        worst = max(worst, squared_distance(back, start) / max(squared_distance(twin, start), 1e-30))
    return float(torch.tensor(worst).sqrt())
