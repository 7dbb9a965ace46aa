"""TIES: trim, elect sign, disjoint merge (Yadav et al., "TIES-Merging: resolving interference", 2023)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fusionlab.merging.ingredients import Ingredients, Survey
from fusionlab.merging.kinds import PerModel
from fusionlab.merging.registry import merge_method
from fusionlab.merging.selection import of_ranks
from fusionlab.merging.task_vectors import add_to_base, check_fractions, disjoint_mean, task_vectors


def thresholds(survey: Survey, density: PerModel, **_: Any) -> list[float] | None:
    """The smallest magnitude that is kept of each model's task vector; None where all are kept.

    Args:
        survey: of models and base.
        density: see `ties`.
    """
    if density == 1 or (isinstance(density, Sequence) and set(density) == {1}):
        return None

    def magnitudes(part: Ingredients) -> list[Tensor]:
        return [task_vectors(part, name).abs().reshape(len(part.states), -1) for name in part.floating()]

    def ranks(model: int, count: int) -> list[int]:
        share = density[model] if isinstance(density, Sequence) else density
        return [max(1, round(share * count))]

    return [least for (least,) in of_ranks(survey, magnitudes, ranks)]


def _refuse(weights: Sequence[float], density: PerModel, **_: Any) -> None:
    check_fractions("density", density, len(weights))


@merge_method("ties", needs=("base",), unit="number", survey=thresholds, refuse=_refuse)
def ties(ingredients: Ingredients, density: PerModel = 0.2, lambda_: float = 1.0) -> dict[str, Tensor]:
    """Keep each model's largest changes, elect a sign for every entry, and average the models that agree with it.

    Trimming looks at a whole task vector at once, as the paper and its code do, so that parameters which fine-tuning
    hardly moved are trimmed away altogether.

    Args:
        ingredients: models, weights and base. Weights take part in the election and in the mean.
        density: the fraction of each task vector's entries to keep, those of largest magnitude (the paper's k); above
            0, at most 1; one number, or one for each model. Their number is ``density * n`` rounded to the nearest
            whole number, at least one; entries as large as the smallest of these are kept too. (mergekit rounds down,
            to 28 for 0.29 of 100, since 0.29 * 100 is a little less than 29 in floating point; the paper's code keeps
            one entry more than mergekit.)
        lambda_: factor on what is added to the base model.

    Returns:
        The merged state, each tensor in the first model's dtype.

    Raises:
        InputError: densities out of range or not for so many models, or integer buffers that differ between the models.
    """
    del density  # has had its say in the survey

    return add_to_base(
        ingredients, lambda name: lambda_ * disjoint_mean(trimmed(ingredients, name), ingredients.weights)
    )


def trimmed(ingredients: Ingredients, name: str) -> Tensor:
    """The task vectors of one parameter without what is smaller than the survey's thresholds, ``(models, *shape)``."""
    changes = task_vectors(ingredients, name)
    if ingredients.surveyed is not None:
        # Shrinking takes what is no longer than a number for zero, and what is as long as the least one is kept.
        least = changes.new_tensor(ingredients.surveyed)
        below = torch.nextafter(least, torch.zeros_like(least)).tolist()
        for change, length in zip(changes, below, strict=True):
            change.copy_(torch.nn.functional.hardshrink(change, length))
    return changes
