"""PCB-Merging (Du et al., "Parameter competition balancing for model merging", 2024)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fusionlab.merging.ingredients import Ingredients, Survey, WholeSurvey
from fusionlab.merging.registry import merge_method
from fusionlab.merging.selection import of_ranks
from fusionlab.merging.task_vectors import add_to_base, check_fraction, flattened, task_vectors, weighted_sum

# The share of the smallest and of the largest magnitudes of a task vector that are set to the next ones.
OUTLIERS = 1e-4


@dataclass(frozen=True)
class _Limits:
    """Numbers that all entries of one task vector are held against.

    Attributes:
        low: the least magnitude that an entry counts as.
        high: the largest.
        least: score of the entries that count, or of the largest of those that do not.
        most: largest score.
    """

    low: float
    high: float
    least: float
    most: float


@dataclass(frozen=True)
class _Competition:
    """Task vectors as a whole.

    Attributes:
        dtype: that all are compared in.
        limits: of each model with a weight; None of one whose best entries have the score 0, as all have of one that is
            the base model: they say nothing.
    """

    dtype: torch.dtype
    limits: Sequence[_Limits | None]


def _compete(survey: Survey, ratio: float, layer_weights: None = None, **_: Any) -> _Competition:
    """The limits of all models; ``layer_weights`` is named as scores depend on the weights of all parameters."""
    del layer_weights
    dtype = survey.dtype

    def lengths(part: Ingredients) -> list[Tensor]:
        present = part.present()
        return [_changes(present, name, dtype).abs() for name in present.floating()]

    def of_lengths(_: int, count: int) -> tuple[int, int]:
        low, high = min(int(count * OUTLIERS), count - 1), max(int(count * (1 - OUTLIERS) - 1), 0)
        return count - low, count - high

    cuts = of_ranks(survey, lengths, of_lengths)

    def scores(part: Ingredients) -> list[Tensor]:
        present = part.present()
        return [_all_scores(_changes(present, name, dtype), present.weights, cuts) for name in present.floating()]

    kept = of_ranks(survey, scores, lambda _, count: (count - min(int(count * (1 - ratio)), count - 1), 1))
    limits = [_Limits(*cut, *scored) if any(scored) else None for cut, scored in zip(cuts, kept, strict=True)]
    return _Competition(dtype, limits)


def _refuse(_: Sequence[float], ratio: float, **__: Any) -> None:
    check_fraction("ratio", ratio)


@merge_method("pcb", needs=("base",), unit="number", survey=_compete, refuse=_refuse)
def pcb(ingredients: Ingredients, lambda_: float = 1.2, ratio: float = 0.05) -> dict[str, Tensor]:
    """Average the task vectors entry by entry, by how large an entry is in its model and how far the models agree.

    An entry's score is ``exp(n m^2) tanh(tau_i sum_j tau_j)``: m is its magnitude, scaled so that a task vector's
    smallest is 0 and its largest 1, without outliers. Of each task vector the entries with the largest scores count, by
    how far their score lies between the least of those (0) and the largest (1): ``theta_base + lambda_ sum_i s_i tau_i
    / sum_i s_i`` (the paper's intra-balancing, inter-balancing and rescaling, as its code has them).

    Args:
        ingredients: models, weights and base. An entry counts by its model's weight times its score, and the sum of
            task vectors is by weight, relative to the mean weight; models without weight take no part,
            nor do those that are the base model.
        lambda_: factor on what is added to the base model, the default is the authors' for vision models.
        ratio: the fraction of each task vector's entries that count, those with the largest scores; above 0, at most 1
            (`pcb_ratio` in the authors' code). Every entry competes with all others of its model.

    Returns:
        The merged state, each tensor in the first model's dtype.

    Raises:
        InputError: a ratio out of range, or integer buffers that differ between the models.
    """
    known: _Competition = ingredients.surveyed or _compete(WholeSurvey(ingredients), ratio)
    present = ingredients.present()

    def change(name: str) -> Tensor:
        flat = _changes(present, name, known.dtype)
        total = len(flat) * weighted_sum(flat, present.weights)
        kept, scores = torch.zeros_like(total), torch.zeros_like(total)
        for row, weight, limits in zip(flat, present.weights, known.limits, strict=True):
            if limits is None:
                continue
            lengths, score = _scores(row, total, len(flat), limits.low, limits.high)
            if limits.least < limits.most:
                score = score.clamp_(min=limits.least).sub_(limits.least).div_(limits.most - limits.least)
            else:
                # Where no more than the largest may count, the limit is the largest itself.
                score = (score == limits.most).to(score)
            score.mul_(weight)
            kept.add_(lengths.mul_(row.sign()).mul_(score))
            scores.add_(score)
        merged = lambda_ * kept / scores.clamp(min=1e-12)
        # An infinite change would be cut as an outlier; what is no number stays none.
        merged.masked_fill_(~flat.isfinite().all(0), torch.nan)
        return merged.reshape(present.states[0][name].shape)

    return add_to_base(ingredients, change)


def _changes(present: Ingredients, name: str, dtype: torch.dtype) -> Tensor:
    """Task vectors of one parameter as rows, ``(models, numbers)``, in the type that all are compared in."""
    return flattened(task_vectors(present, name)).to(dtype)


def _all_scores(flat: Tensor, weights: Sequence[float], cuts: Sequence[Sequence[float]]) -> Tensor:
    """The scores of some entries in each model, ``(models, numbers)``; lengths are cut to two numbers for each."""
    total = len(flat) * weighted_sum(flat, weights)
    scored = [_scores(row, total, len(flat), low, high)[1] for row, (low, high) in zip(flat, cuts, strict=True)]
    return torch.stack(scored)


def _scores(row: Tensor, total: Tensor, count: int, low: float, high: float) -> tuple[Tensor, Tensor]:
    """The magnitudes of some entries of one of so many task vectors, cut, and their scores; all where all are alike."""
    lengths = row.abs().clamp_(low, high)
    scaled = (lengths - low) / (high - low) if high > low else torch.ones_like(lengths)
    return lengths, (count * scaled.square_()).exp_() * torch.tanh(row * total)
