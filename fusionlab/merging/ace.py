"""ACE (Xu et al., "ACE-Merging: data-free model merging with adaptive covariance estimation", 2026)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fusionlab.decompositions import svd
from fusionlab.errors import InputError
from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.matrices import as_matrix, merge_matrices
from fusionlab.merging.registry import merge_method
from fusionlab.merging.task_vectors import check_fraction, weighted_sum

# Beyond this the sizes of the task vectors differ so much that each is divided by its own (the authors' code).
UNEVEN = 0.3
# Inputs of a matrix beyond which it is averaged: its covariances would take more memory than the model.
WIDEST = 8192


def _refuse(_: Sequence[float], epsilon: float, rank: float, **__: Any) -> None:
    if not epsilon > 0:
        raise InputError(f"epsilon is {epsilon}; expected a number above 0")
    check_fraction("rank", rank)


def _holds(shape: Sequence[int], models: int) -> float:
    """Covariances are as large as a square matrix of the inputs, however few outputs there are."""
    rows, columns = as_matrix(shape) or (1, WIDEST + 1)
    if columns > WIDEST:
        return 3 + 4 * models
    return max(12 + 4 * models + 14 * columns / rows, 2 + 6 * models)


@merge_method("ace", needs=("base",), unit="parameter", refuse=_refuse, holds=_holds)
def ace(ingredients: Ingredients, lambda_: float = 1.0, epsilon: float = 1e-2, rank: float = 0.3) -> dict[str, Tensor]:
    """RegMean without data: what fine-tuning changed says how the inputs of every matrix vary.

    With ``Z_i`` the task vector of a matrix ``(out, in)`` less its mean over the outputs, and ``C_i = Z_i^T Z_i``, the
    change T solves ``T (sum_i (C_i + e I) + 1 c^T) = sum_i Z_i (C_i + e I)``; every row of ``1 c^T`` is the mean of the
    rows of ``sum_i C_i``, the structure that all tasks share. Where the sizes of the task vectors differ much (the
    variance of ``log |tau_i|^2`` over its squared mean is above 0.3) each C_i and e are divided by the trace of C_i, c
    by the mean size, and T gets ``s U V^T`` on top: of the largest singular directions of ``T + sum_i tau_i (C_i - C)``
    where C is the mean of the ``C_i + e I``, with s the mean of their singular values.

    This is what the authors' code does. By the mean over the outputs and by ``1 c^T`` the result depends on the basis
    that models are in.

    Args:
        ingredients: models, weights and base. A model's terms count by its weight, relative to the mean weight. What is
            no matrix is averaged (see `merge_matrices`), and so is one of more than 8,192 inputs.
        lambda_: factor on what is added to the base model; the paper has none.
        epsilon: e, above 0, in units of squared numbers of task vectors.
        rank: the fraction of singular directions in the addition; above 0, at most 1.

    Returns:
        The merged state, each tensor in the first model's dtype; sums and solutions are in float64.

    Raises:
        InputError: numbers out of range, or integer buffers that differ between the models.
    """

    def merge(changes: Tensor, factors: Tensor, _: float) -> Tensor:
        if changes.shape[2] > WIDEST:
            return weighted_sum(changes, (factors / len(changes)).tolist())
        sizes = changes.double().square().sum((1, 2))
        # A model that changed nothing says nothing of its inputs.
        given, factors = changes[sizes > 0].double(), factors[sizes > 0].double()
        sizes = sizes[sizes > 0]
        if not len(given):
            return changes[0] * 0
        logs = sizes.log()
        uneven = len(given) > 1 and bool(logs.var() > UNEVEN * logs.mean().square())
        columns = given.shape[2]
        identity = torch.eye(columns).to(given)
        total, wanted, shared = torch.zeros_like(identity), torch.zeros_like(given[0]), torch.zeros_like(identity)
        rest = torch.zeros_like(given[0])
        for change, factor in zip(given, factors, strict=True):
            centred = change - change.mean(0, keepdim=True)
            covariance = centred.mT @ centred
            scale = covariance.trace().clamp(min=torch.finfo(covariance.dtype).tiny) if uneven else 1.0
            covariance = covariance / scale
            regular = covariance + epsilon / scale * identity
            total += factor * regular
            wanted += factor * centred @ regular
            shared += factor * covariance
            rest += factor * change @ covariance
        prior = shared.mean(0, keepdim=True) / (sizes.mean() if uneven else 1.0)
        merged = torch.linalg.solve(total + prior, wanted, left=False)
        if uneven:
            rest -= torch.einsum("m,moi->oi", factors, given) @ total / factors.sum()
            left, values, right = svd(rest + merged, full_matrices=False)
            kept = max(1, int(rank * len(values)))
            merged += values[:kept].mean() * left[:, :kept] @ right[:kept]
        return merged.to(changes)

    return merge_matrices(ingredients, lambda_, merge)
