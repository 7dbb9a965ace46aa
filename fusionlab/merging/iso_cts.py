"""Iso-CTS (Marczak et al., "No task left behind: isotropic merging in common and task-specific subspaces", 2025)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.matrices import Decomposed, decompose, merge_matrices, nearest_isometry, rounding
from fusionlab.merging.registry import merge_method
from fusionlab.merging.task_vectors import weighted_sum


def _refuse(_: Sequence[float], common: float, **__: Any) -> None:
    if not 0 <= common <= 1:
        raise InputError(f"common is {common}; expected a number from 0 to 1")


@merge_method("iso_cts", needs=("base",), unit="parameter", refuse=_refuse, holds=(14, 5))
def iso_cts(ingredients: Ingredients, lambda_: float = 1.0, common: float = 0.8) -> dict[str, Tensor]:
    """Iso-C in which the least directions of the sum make room for directions of single models.

    Of ``sum_i tau_i`` the largest singular directions are kept, the common space. Each model adds the largest ones of
    what its task vector has outside the common output directions, ``tau_i - U U^T tau_i``, as many for each. All left
    and all right vectors are made orthogonal by Procrustes, and all singular values are set to their mean.

    Args:
        ingredients: see `iso_c`.
        lambda_: factor on what is added to the base model (the paper's alpha, chosen on validation data there).
        common: the fraction of a matrix's directions that the common space gets, 0 to 1, made up so that the rest is
            the same whole number for every model.

    Returns:
        The merged state, each tensor in the first model's dtype.

    Raises:
        InputError: a fraction out of range, or integer buffers that differ between the models.
    """

    def merge(changes: Tensor, factors: Tensor, least: float) -> Tensor:
        changes = factors[:, None, None] * changes
        size = min(changes.shape[1:])
        # As the authors' code rounds, but for rounding up to more directions than there are.
        each = min(round((size - int(size * common)) / len(changes)), size // len(changes))
        # What is left of a task vector may be the error of a difference of two that are much larger.
        least = max(least, rounding(float(torch.linalg.matrix_norm(changes, 2).max()), changes))
        shared = _largest(decompose(weighted_sum(changes, [1.0] * len(changes)), least), size - each * len(changes))
        basis = shared[0]
        own = [_largest(decompose(change - basis @ (basis.mT @ change), least), each) for change in changes]
        lefts, values, rights = zip(*own, shared, strict=True)
        spectrum = torch.cat(values)
        if not len(spectrum):
            return changes[0] * 0
        return spectrum.mean() * (nearest_isometry(torch.cat(lefts, 1)) @ nearest_isometry(torch.cat(rights, 0)))

    return merge_matrices(ingredients, lambda_, merge)


def _largest(found: Decomposed, count: int) -> Decomposed:
    """The largest singular values, and their vectors."""
    left, values, right = found
    return left[:, :count], values[:count], right[:count]
