"""Merges of task vectors that look at singular vectors: what counts as a matrix, and what becomes of the rest."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.task_vectors import add_to_base, task_vectors, weighted_sum

# Singular values and both bases of a matrix: U (rows, rank), s (rank), V^T (rank, columns).
Decomposed = tuple[Tensor, Tensor, Tensor]


def merge_matrices(
    ingredients: Ingredients, lambda_: float, merge: Callable[[Tensor, Tensor], Tensor]
) -> dict[str, Tensor]:
    """The base model with the task vectors of every matrix merged, and the mean of those of everything else.

    A parameter of two dimensions is a matrix, ``(out, in)`` for a linear layer. One of four or five is a convolution,
    and the matrix ``(out, in * kernel)`` that it applies to every patch. Vectors, numbers and parameters of three
    dimensions (positions, experts in a stack) are averaged by weight.

    Args:
        ingredients: models, weights and base. Models without a weight take no part.
        lambda_: factor on what is added to the base model, mean or not.
        merge: of task vectors ``(models, out, in)`` in float32 or better and a factor for each model, shape
            ``(models,)``: its weight divided by the mean weight, so that equal weights are ones.

    Raises:
        InputError: integer buffers differ between the models.
    """
    present = [index for index, weight in enumerate(ingredients.weights) if weight > 0]
    weights = [ingredients.weights[index] for index in present]

    def change(name: str) -> Tensor:
        changes = task_vectors(ingredients, name)[present]
        mean = weighted_sum(changes, weights)
        # What is not finite has no singular values. Its mean is no number either, which is refused where it is written.
        if changes.dim() not in (3, 5, 6) or 0 in changes.shape or not bool(mean.isfinite().all()):
            return lambda_ * mean
        factors = len(present) * changes.new_tensor(weights)
        return lambda_ * merge(changes.flatten(2), factors).reshape(mean.shape)

    return add_to_base(ingredients, change)


def decompose(matrix: Tensor) -> Decomposed:
    """The singular value decomposition without singular values that are zero to rounding, largest first."""
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    least = max(matrix.shape) * torch.finfo(values.dtype).eps * values[0]
    rank = int((values > least).sum())
    return left[:, :rank], values[:rank], right[:rank]


def nearest_isometry(matrix: Tensor) -> Tensor:
    """The orthogonal factor of the polar decomposition: the matrix with all singular values set to 1, zeros left zeros.

    Of all matrices with orthonormal columns (or rows) it is the nearest in the Frobenius norm (orthogonal Procrustes).
    Directions in which the matrix is zero stay so, which keeps the result unique.
    """
    left, _, right = decompose(matrix)
    return left @ right
