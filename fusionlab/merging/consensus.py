"""Consensus merging (Wang et al., "Localizing task information for improved model merging and compression", 2024)."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.merging.dare import Combination
from fusionlab.merging.ingredients import Ingredients, Survey
from fusionlab.merging.kinds import PerModel
from fusionlab.merging.registry import merge_method
from fusionlab.merging.task_vectors import (
    add_to_base,
    agreeing_sum,
    check_fractions,
    task_vectors,
    weighted_sum,
)
from fusionlab.merging.ties import thresholds, trimmed


def thresholds_of_ties(survey: Survey, combination: Combination, density: PerModel, **_: Any) -> list[float] | None:
    """The thresholds of TIES' trimming where it combines; None where nothing is trimmed."""
    return thresholds(survey, density) if combination == "ties" else None


def _refuse(
    weights: Sequence[float], threshold: float, k: int, combination: Combination, density: PerModel, **_: Any
) -> None:
    if threshold < 0:
        raise InputError(f"threshold is {threshold}; expected a number from 0 up")
    if k < 0:
        raise InputError(f"k is {k}; expected a number of tasks, from 0 up")
    if k > len(weights):
        raise InputError(f"k is {k}; expected at most {len(weights)}, as many tasks as there are models")
    if combination == "ties":
        check_fractions("density", density, len(weights))


@merge_method("consensus", needs=("base",), unit="number", survey=thresholds_of_ties, refuse=_refuse)
def consensus(
    ingredients: Ingredients,
    lambda_: float = 1.0,
    threshold: float = 0.4,
    k: int = 2,
    combination: Combination = "linear",
    density: PerModel = 0.2,
) -> dict[str, Tensor]:
    """Task arithmetic or TIES without the entries that matter to fewer than k of the tasks.

    An entry matters to a task where its task vector is large beside what the sum of all would add to it: ``|tau_i| >=
    threshold |tau - tau_i|`` with ``tau = sum_i tau_i`` (the paper's TALL masks). Entries that matter to no task
    (catastrophic) or to one (selfish) are set back to the base model's: ``theta_base + lambda_ m * sum_i w_i tau_i``, m
    true where an entry matters to k tasks or more.

    Args:
        ingredients: models, weights and base. In the masks task vectors are added by weight, relative to the mean
            weight; models without weight take no part.
        lambda_: factor on what is added to the base model; the weights sum to 1, so it is n times the paper's alpha
            for n models of equal weight.
        threshold: of the masks, from 0 up; the paper chooses it for each task on validation data from 0.2 to 0.6.
        k: how many tasks must need an entry, from 0 to the number of models; 0 keeps all, 1 removes the catastrophic
            entries only. Where fewer models than that have a weight, all of those must need it.
        combination: ``linear``, consensus task arithmetic; or ``ties``, consensus TIES: tau is the sum of those trimmed
            task vectors that have the elected sign.
        density: of TIES' trimming, one number or one for each model.

    Returns:
        The merged state, each tensor in the first model's dtype.

    Raises:
        InputError: a number out of range, an unknown combination, or integer buffers that differ.
    """
    present = ingredients.present()
    enough = min(k, len(present.states))

    def change(name: str) -> Tensor:
        changes = task_vectors(present, name)
        if combination == "ties":
            kept = trimmed(ingredients, name)
            elected = weighted_sum(kept, ingredients.weights).sign_()
            added, _ = agreeing_sum(kept, ingredients.weights, elected)
        else:
            added = weighted_sum(changes, present.weights)
        total = len(changes) * added
        needed = sum((own.abs() >= threshold * (total - own).abs()).to(added.dtype) for own in changes)
        return lambda_ * added * (needed >= enough)

    return add_to_base(ingredients, change)
