"""The greedy soup (Wortsman et al., "Model soups", 2022, recipe 1)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.evaluation.wording import listing
from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.registry import merge_method


# The mean so far, the one that is tried, and the model that is scored, with what it is made of.
@merge_method("soup", needs=("score",), holds=(5, 1))
def soup(ingredients: Ingredients) -> dict[str, Tensor]:
    """Average as many models as help: from the best downwards, a model stays if the mean's score does not fall.

    It tells which models it kept, which not, and the scores of the mean and of the best model alone.

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
    ingredients.tell(_told(ingredients, kept, scores, score))
    return merged


def _told(ingredients: Ingredients, kept: Sequence[int], scores: Mapping[int, float], score: float) -> str:
    """The models that were kept, in the order in which they were taken, and those that were not.

    Args:
        ingredients: all models.
        kept: places of some.
        scores: of the models that have a weight, by their places.
        score: of the mean of those that were kept.
    """
    left = []
    for index in range(len(ingredients.states)):
        if index not in kept:
            reason = " (weight 0)" if index not in scores else "" if math.isfinite(scores[index]) else " (diverged)"
            left.append(f"{ingredients.called(index)}{reason}")
    names = [ingredients.called(index) for index in kept]
    of_best = f"{names[0]} alone has {scores[kept[0]]:.4g}"
    told = f"their mean has the score {score:.4g} on validation data, {of_best}" if kept[1:] else of_best
    told += "" if kept[1:] else " on validation data, and no mean with another has as much"
    return (
        f"Kept {listing(names)} of {len(ingredients.states)} models"
        f"{f', left out {listing(left)}' if left else ''}; {told}."
    )


def _mean(ingredients: Ingredients, chosen: Sequence[int]) -> dict[str, Tensor]:
    """The weighted mean of some of the models, in the first model's types."""
    total = sum(ingredients.weights[index] for index in chosen)
    part = replace(
        ingredients,
        states=[ingredients.states[index] for index in chosen],
        weights=[ingredients.weights[index] / total for index in chosen],
    )
    return {name: tensor.to(ingredients.states[0][name].dtype) for name, tensor in part.averaged().items()}
