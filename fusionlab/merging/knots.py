"""KnOTS (Stoica et al., "Model merging with SVD to tie the knots", 2024)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.kinds import PerModel
from fusionlab.merging.matrices import decompose, merge_matrices
from fusionlab.merging.registry import merge_method
from fusionlab.merging.task_vectors import check_fractions, disjoint_mean, per_model


def _refuse(weights: Sequence[float], density: PerModel, **_: Any) -> None:
    check_fractions("density", density, len(weights))


@merge_method("knots", needs=("base",), unit="parameter", refuse=_refuse, holds=(13, 5))
def knots(ingredients: Ingredients, lambda_: float = 1.0, density: PerModel = 0.2) -> dict[str, Tensor]:
    """Write the task vectors of every matrix in one basis of outputs, and merge by TIES what each reads for it.

    With ``[tau_1 ... tau_n] = U S [V_1 ... V_n]^T``, task vectors side by side, each is ``tau_i = U (S V_i^T)``. The
    factors ``S V_i^T`` are trimmed, a sign is elected for every entry and those that agree are averaged: ``theta_base +
    lambda_ U ties(S V_i^T)``. Made for LoRA adapters, whose task vectors share few directions as they come.

    Args:
        ingredients: models, weights and base. Weights take part in the election and in the mean. What is no matrix is
            averaged; see `merge_matrices`.
        lambda_: factor on what is added to the base model (the paper chooses it on validation data).
        density: the fraction of each factor's entries to keep, those of largest magnitude; above 0, at most 1; one
            number, or one for each model. Entries are trimmed matrix by matrix; the authors' code trims the factors of
            all matrices together.

    Returns:
        The merged state, each tensor in the first model's dtype.

    Raises:
        InputError: densities out of range or not for so many models, or integer buffers that differ between the models.
    """
    given = per_model(density, len(ingredients.states))
    # Models without a weight take no part.
    shares = [share for share, weight in zip(given, ingredients.weights, strict=True) if weight > 0]

    def merge(changes: Tensor, factors: Tensor, least: float) -> Tensor:
        left, values, right = decompose(torch.cat(list(changes), dim=1), least)
        if not len(values):
            return changes[0] * 0
        parts = torch.stack((values[:, None] * right).split(changes.shape[2], dim=1))
        for part, share in zip(parts, shares, strict=True):
            if share < 1:
                lengths = part.abs()
                kept_least = lengths.flatten().topk(max(1, round(share * part.numel()))).values[-1]
                part.mul_(lengths >= kept_least)
        return left @ disjoint_mean(parts, (factors / len(changes)).tolist())

    return merge_matrices(ingredients, lambda_, merge)
