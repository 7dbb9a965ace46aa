"""Fisher-weighted averaging (Matena and Raffel, "Merging models with Fisher-weighted averaging", 2022)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.merging.ingredients import Ingredients, WholeSurvey
from fusionlab.merging.registry import merge_method
from fusionlab.statistics import Fisher
from fusionlab.statistics.likelihood import Labels

Normalize = Literal["none", "model", "parameter"]


def _refuse(_: Sequence[float], floor: float, **__: Any) -> None:
    if not floor >= 0:
        raise InputError(f"floor is {floor}; expected a number from 0 up")


def _scaled(survey: WholeSurvey, floor: float, normalize: Normalize, labels: Labels | None) -> _Scaled:
    """The Fisher values of all models, and the least that one counts as; see `fisher`.

    Raises:
        InputError: other labels than those that were gathered with.
    """
    gathered = survey.ingredients.gathered(Fisher)
    for statistics in gathered:
        if labels is not None and (found := statistics.settings.get("labels", labels)) != labels:
            raise InputError(f"labels is {labels!r}, but the fisher statistics were gathered with {found!r}")
    return _Scaled([statistics.diagonal for statistics in gathered], normalize, floor, survey.ingredients.floating())


def _alone(_: Ingredients) -> tuple[()]:
    """No parameters depend on each other."""
    return ()


@merge_method("fisher", needs=("fisher",), refuse=_refuse, survey=_scaled, together=_alone, holds=(22, 2))
def fisher(
    ingredients: Ingredients, floor: float = 1e-6, normalize: Normalize = "none", labels: Labels | None = None
) -> dict[str, Tensor]:
    """Average every number weighted by how much its model's predictions depend on it.

    ``sum_i w_i F_i theta_i / sum_i w_i F_i`` with F_i the diagonal of model i's Fisher information: the mode of the
    product of the Gaussians that approximate the models' posteriors (section 3). Parameters that no model has Fisher
    information of are averaged.

    Args:
        ingredients: models, weights and Fisher information.
        floor: the least that a Fisher value counts as, relative to the mean value over all models and parameters; from
            0 up. Where all models lie below it, no data has a say and there is only rounding to weigh by: the result is
            the weighted mean. It is relative because the size of Fisher information depends on the architecture, the
            number of classes and the models' confidence, so that no absolute number suits all of them.
        normalize: ``model`` divides a model's Fisher values by their Euclidean norm, so that a model that is less sure
            of its labels does not count more; ``parameter`` does so for each parameter by itself.
        labels: whose labels the Fisher information is gathered with: ``model``, ``expected`` or ``empirical``; None
            takes what was gathered, and gathers with the model's.

    Returns:
        The merged state, each tensor in the first model's dtype; sums are taken in float64.

    Raises:
        InputError: a hyperparameter out of range, other labels than those that were gathered with, Fisher information
            of other shapes, or integer buffers that differ between the models.
    """
    scaled: _Scaled = ingredients.surveyed or _scaled(WholeSurvey(ingredients), floor, normalize, labels)
    merged = ingredients.averaged()
    for name in [name for name in ingredients.floating() if name in scaled.names]:
        mean = ingredients.mean(name).double()
        change, total = torch.zeros_like(mean), torch.zeros_like(mean)
        for index, (state, weight) in enumerate(zip(ingredients.states, ingredients.weights, strict=True)):
            precision = weight * scaled(index, name, mean).clamp(min=scaled.least)
            # As a difference to the mean, what the models agree on stays as it is to the last digit.
            change += precision * (state[name].to(mean) - mean)
            total += precision
        merged[name] = (mean + torch.where(total > 0, change / total, 0)).to(merged[name].dtype)
    return merged


class _Scaled:
    """The Fisher values of all models, normalised.

    Args:
        diagonals: by parameter name, one mapping for each model; a parameter that one model lacks has zeros there.
        normalize: see `fisher`, like the next.
        floor: relative to the mean value.
        merged: the names of all parameters that are merged.

    Attributes:
        least: that a value counts as.
    """

    def __init__(
        self, diagonals: Sequence[Mapping[str, Tensor]], normalize: Normalize, floor: float, merged: Sequence[str]
    ) -> None:
        self.diagonals = diagonals
        self.names = {name for diagonal in diagonals for name in diagonal}
        self.factors = [_factors(diagonal, normalize) for diagonal in diagonals]
        self.least = floor * self._mean([name for name in merged if name in self.names])

    def __call__(self, index: int, name: str, like: Tensor) -> Tensor:
        """Model `index`'s values for one parameter, in the type and on the device of `like`.

        Raises:
            InputError: they have another shape.
        """
        if name not in self.diagonals[index]:
            return torch.zeros_like(like)
        diagonal = self.diagonals[index][name]
        if diagonal.shape != like.shape:
            raise InputError(
                f"the Fisher information of {name!r} has shape {'x'.join(map(str, diagonal.shape))} for model {index}; "
                f"expected {'x'.join(map(str, like.shape))}"
            )
        return diagonal.to(like) * self.factors[index][name]

    def _mean(self, names: Sequence[str]) -> float:
        """The mean value over all models and these parameters."""
        total, count = 0.0, 0
        for diagonal, factors in zip(self.diagonals, self.factors, strict=True):
            for name in names:
                if name in diagonal:
                    total += float(diagonal[name].sum(dtype=torch.float64)) * factors[name]
                    count += diagonal[name].numel()
        return total / max(1, count)


def _factors(diagonal: Mapping[str, Tensor], normalize: Normalize) -> dict[str, float]:
    """The factor of each parameter's Fisher values."""
    if normalize == "none":
        return dict.fromkeys(diagonal, 1.0)
    norms = {name: float(tensor.double().norm()) for name, tensor in diagonal.items()}
    if normalize == "model":
        norms = dict.fromkeys(norms, sum(norm**2 for norm in norms.values()) ** 0.5)
    return {name: 1 / norm if norm > 0 else 0.0 for name, norm in norms.items()}
