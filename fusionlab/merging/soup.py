"""The greedy soup (Wortsman et al., "Model soups", 2022, recipe 1)."""

import math
from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.registry import merge_method


# The mean so far, the one that is tried, and the model that is scored, with what it is made of.
@merge_method("soup", needs=("score",), holds=(5, 1))
def soup(ingredients: Ingredients) -> dict[str, Tensor]:
    """Average as many models as help: from the best downwards, a model stays if the mean's score does not fall.

    Args:
        ingredients: models, their weights, and a score on data that no result is reported on. The mean is weighted (the
            paper's is not). A model of weight 0 is never tried, and one that has diverged, so that its score is not
            finite, is left out.

    Returns:
        The merged state, each tensor in the first model's dtype.

    Raises:
        InputError: no model has a finite score, or integer buffers differ between the models.
    """
    assert ingredients.score is not None
    candidates = [index for index, weight in enumerate(ingredients.weights) if weight > 0]
    scores = {index: ingredients.score(ingredients.states[index]) for index in candidates}
    candidates = [index for index in candidates if math.isfinite(scores[index])]
    if not candidates:
        found = ", ".join(f"{score:g}" for score in scores.values())
        raise InputError(
            f"soup has no model to start from: the scores of all models are {found}; expected one that has not diverged"
        )
    # The sort is stable, so of equal models the earlier comes first.
    best, *others = sorted(candidates, key=lambda index: -scores[index])
    kept, merged, score = [best], _mean(ingredients, [best]), scores[best]
    for index in others:
        trial = _mean(ingredients, [*kept, index])
        reached = ingredients.score(trial)
        if reached >= score:
            kept, merged, score = [*kept, index], trial, reached
    return merged


def _mean(ingredients: Ingredients, chosen: Sequence[int]) -> dict[str, Tensor]:
    """The weighted mean of some of the models, in the first model's types."""
    total = sum(ingredients.weights[index] for index in chosen)
    part = replace(
        ingredients,
        states=[ingredients.states[index] for index in chosen],
        weights=[ingredients.weights[index] / total for index in chosen],
    )
    return {name: tensor.to(ingredients.states[0][name].dtype) for name, tensor in part.averaged().items()}
