"""WUDI (Cheng et al., "Whoever started the interference should end it: guiding data-free model merging", 2025)."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.matrices import as_matrix, merge_matrices
from fusionlab.merging.registry import merge_method
from fusionlab.merging.task_vectors import check_fraction, weighted_sum

Solver = Literal["descent", "exact"]


def _refuse(_: Sequence[float], steps: int, learning_rate: float, **__: Any) -> None:
    if steps < 0:
        raise InputError(f"steps is {steps}; expected 0 or more")
    check_fraction("learning_rate", learning_rate)


def _holds(shape: Sequence[int], models: int) -> float:
    """The exact solver's sums are square: of the inputs, or of all models' rows where these are fewer."""
    if (matrix := as_matrix(shape)) is None:
        return 3 + 4 * models
    rows, columns = matrix
    return 9 + 6 * models + 10 * min(models * rows, columns) ** 2 / (rows * columns)


@merge_method("wudi", needs=("base",), unit="parameter", refuse=_refuse, holds=_holds)
def wudi(
    ingredients: Ingredients,
    lambda_: float = 1.0,
    solver: Solver = "descent",
    steps: int = 300,
    learning_rate: float = 1e-5,
) -> dict[str, Tensor]:
    """The change of every matrix that differs least from each task vector on what that model reads, found without data.

    A linear layer's task vector lies in the span of its inputs, so it stands for them: the merge T minimises ``sum_i
    ||(T - tau_i) tau_i^T||^2 / ||tau_i||^2``, with parameters ``(out, in)``. The minimum is
    RegMean's, with ``tau_i^T tau_i / ||tau_i||^2`` in place of the Gram matrix: ``T sum_i C_i = sum_i tau_i C_i``.

    Args:
        ingredients: models, weights and base. A model's term counts by its weight. What is no matrix is averaged; see
            `merge_matrices`. Embeddings and the maps of GPT-2 are stored as (in, out), where the sides change roles:
            there it is what the model writes, not what it reads, that stands in for data.
        lambda_: factor on what is added to the base model; the paper has none.
        solver: ``descent``, the paper's: Adam from the sum of the task vectors; ``exact``, the minimum, and of many
            minima the shortest.
        steps: of the descent, from 0 up.
        learning_rate: of the descent, above 0, at most 1. An entry moves by no more than about `steps` times
            this: where task vectors are much larger, the descent ends near the sum.

    Returns:
        The merged state, each tensor in the first model's dtype.

    Raises:
        InputError: steps or a learning rate out of range, or integer buffers that differ between the models.
    """

    def merge(changes: Tensor, factors: Tensor, _: float) -> Tensor:
        # Squares of small numbers are zero in float32. A task vector of zeros disturbs nothing, nor does anything it.
        norms = torch.linalg.vector_norm(changes, dim=(1, 2), dtype=torch.float64)
        for change, norm in zip(changes, norms.tolist(), strict=True):
            change.copy_(change.double() / (norm or 1.0))
        if solver == "exact":
            return _minimum(changes.double(), norms, factors.double()).to(changes)
        merged = weighted_sum(changes, (factors * norms).tolist())
        gradient = _gradient(changes, norms, factors)
        optimizer = torch.optim.Adam([merged], lr=learning_rate)
        for _ in range(steps):
            merged.grad = gradient(merged)
            optimizer.step()
        return merged

    return merge_matrices(ingredients, lambda_, merge)


def _sums(units: Tensor, norms: Tensor, factors: Tensor) -> tuple[Tensor, Tensor]:
    """``sum_i C_i`` and ``sum_i tau_i C_i`` with ``C_i = factors_i u_i^T u_i``, one of them in memory at a time.

    Args:
        units: ``u_i = tau_i / ||tau_i||``, or zeros, shape ``(models, out, in)``.
        norms: ``||tau_i||``, shape ``(models,)``, like the factors.
        factors: relative weights of the models.
    """
    columns = units.shape[2]
    total, wanted = units.new_zeros(columns, columns), torch.zeros_like(units[0])
    for unit, norm, factor in zip(units, norms.tolist(), factors.tolist(), strict=True):
        gram = factor * unit.mT @ unit
        total += gram
        wanted += norm * (unit @ gram)
    return total, wanted


def _minimum(units: Tensor, norms: Tensor, factors: Tensor) -> Tensor:
    """The shortest of all minima: what no task vector reads is zero, so it lies in the span of all their rows."""
    rows = units.flatten(0, 1)
    if len(rows) < rows.shape[1]:
        basis = torch.linalg.qr(rows.mT).Q
        return _minimum(units @ basis, norms, factors) @ basis.mT
    total, wanted = _sums(units, norms, factors)
    return wanted @ torch.linalg.pinv(total, hermitian=True)


def _gradient(units: Tensor, norms: Tensor, factors: Tensor) -> Callable[[Tensor], Tensor]:
    """The gradient of the loss: by the sum over the models where its side is less than all of their rows."""
    models, rows, columns = units.shape
    if columns <= models * rows:
        total, wanted = _sums(units, norms, factors)
        return lambda merged: 2 * (merged @ total - wanted)
    twice, lengths = 2 * factors[:, None, None], norms[:, None, None].to(units)
    return lambda merged: (twice * ((merged - lengths * units) @ units.mT) @ units).sum(0)
