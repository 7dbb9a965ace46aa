"""TIES: trim, elect sign, disjoint merge (Yadav et al., "TIES-Merging: resolving interference", 2023)."""

from dataclasses import replace

import torch
from torch import Tensor

from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.registry import merge_method
from fusionlab.merging.task_vectors import add_to_base, check_fraction, disjoint_mean, task_vectors


@merge_method("ties", needs=("base",))
def ties(ingredients: Ingredients, density: float = 0.2, lambda_: float = 1.0) -> dict[str, Tensor]:
    """Keep each model's largest changes, elect a sign for every entry, and average the models that agree with it.

    Trimming looks at a whole task vector at once, as the paper and its code do, so that parameters which fine-tuning
    hardly moved are trimmed away altogether.

    Args:
        ingredients: models, weights and base. Weights take part in the election and in the mean.
        density: the fraction of each task vector's entries to keep, those of largest magnitude (the paper's k); above
            0, at most 1. Their number is ``density * n`` rounded to the nearest whole number, at least one; entries as
            large as the smallest of these are kept too. (mergekit rounds down, to 28 for 0.29 of 100, since 0.29 * 100
            is a little less than 29 in floating point; the paper's code keeps one entry more than mergekit.)
        lambda_: factor on what is added to the base model.

    Returns:
        The merged state, each tensor in the first model's dtype.

    Raises:
        InputError: a density out of range, or integer buffers that differ between the models.
    """
    check_fraction("density", density)
    thresholds = _thresholds(ingredients, density)

    def change(name: str) -> Tensor:
        changes = task_vectors(ingredients, name)
        least = changes.new_tensor(thresholds).reshape(-1, *[1] * (changes.ndim - 1))
        return lambda_ * disjoint_mean(torch.where(changes.abs() >= least, changes, 0.0), ingredients.weights)

    return add_to_base(ingredients, change)


def _thresholds(ingredients: Ingredients, density: float) -> list[float]:
    """The smallest magnitude that is kept of each model."""
    if density == 1:
        return [0.0] * len(ingredients.states)
    names = ingredients.floating()
    found = []
    for index in range(len(ingredients.states)):
        # One model at a time: this is the only moment when a whole task vector is held.
        one = replace(ingredients, states=[ingredients.states[index]], weights=[1.0])
        magnitudes = torch.cat([task_vectors(one, name).abs().flatten() for name in names])
        least = len(magnitudes) - max(1, round(density * len(magnitudes)))
        # On the processor a good deal faster than torch's kthvalue, and in place.
        ordered = magnitudes.cpu().numpy()
        ordered.partition(least)
        found.append(float(ordered[least]))
    return found
