"""WUDI (Cheng et al., "Whoever started the interference should end it: guiding data-free model merging", 2025)."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.matrices import merge_matrices
from fusionlab.merging.registry import merge_method
from fusionlab.merging.task_vectors import weighted_sum

Solver = Literal["descent", "exact"]


@merge_method("wudi", needs=("base",), unit="parameter")
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
            `merge_matrices`. Embeddings and the maps of GPT-2 are stored as (in, out), where the sides change roles.
        lambda_: factor on what is added to the base model; the paper has none.
        solver: ``descent``, the paper's: Adam from the sum of the task vectors; ``exact``, the minimum, and of many
            minima the shortest.
        steps: of the descent, from 0 up.
        learning_rate: of the descent, above 0. An entry moves by no more than about `steps` times this: where task
            vectors are much larger, the descent ends near the sum.

    Returns:
        The merged state, each tensor in the first model's dtype.

    Raises:
        InputError: steps or a learning rate out of range, or integer buffers that differ between the models.
    """
    if steps < 0:
        raise InputError(f"steps is {steps}; expected 0 or more")
    if not learning_rate > 0:
        raise InputError(f"learning_rate is {learning_rate}; expected a number above 0")

    def merge(changes: Tensor, factors: Tensor) -> Tensor:
        squares = changes.square().sum((1, 2))
        # A task vector of zeros disturbs nothing, and is disturbed by nothing.
        shares = torch.where(squares > 0, factors / squares, 0.0)
        if solver == "exact":
            return _minimum(changes.double(), shares.double()).to(changes)
        merged = weighted_sum(changes, factors.tolist())
        gradient = _gradient(changes, shares)
        optimizer = torch.optim.Adam([merged], lr=learning_rate)
        for _ in range(steps):
            merged.grad = gradient(merged)
            optimizer.step()
        return merged

    return merge_matrices(ingredients, lambda_, merge)


def _sums(changes: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """``sum_i C_i`` and ``sum_i tau_i C_i`` with ``C_i = shares_i tau_i^T tau_i``, one of them in memory at a time."""
    columns = changes.shape[2]
    total, wanted = changes.new_zeros(columns, columns), torch.zeros_like(changes[0])
    for change, share in zip(changes, shares.tolist(), strict=True):
        gram = share * change.mT @ change
        total += gram
        wanted += change @ gram
    return total, wanted


def _minimum(changes: Tensor, shares: Tensor) -> Tensor:
    """The shortest of all minima: what no task vector reads is zero, so it lies in the span of all their rows."""
    rows = changes.flatten(0, 1)
    if len(rows) < rows.shape[1]:
        basis = torch.linalg.qr(rows.mT).Q
        return _minimum(changes @ basis, shares) @ basis.mT
    total, wanted = _sums(changes, shares)
    return wanted @ torch.linalg.pinv(total, hermitian=True)


def _gradient(changes: Tensor, shares: Tensor) -> Callable[[Tensor], Tensor]:
    """The gradient of the loss, by products of the smaller side."""
    if changes.shape[2] <= changes.shape[1]:
        total, wanted = _sums(changes, shares)
        return lambda merged: 2 * (merged @ total - wanted)
    factors = 2 * shares[:, None, None]
    return lambda merged: (factors * ((merged - changes) @ changes.mT) @ changes).sum(0)
