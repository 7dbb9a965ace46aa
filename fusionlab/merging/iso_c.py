"""Iso-C (Marczak et al., "No task left behind: isotropic merging in common and task-specific subspaces", 2025)."""

from torch import Tensor

from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.matrices import decompose, merge_matrices
from fusionlab.merging.registry import merge_method
from fusionlab.merging.task_vectors import weighted_sum


@merge_method("iso_c", needs=("base",), unit="parameter", holds=(11, 3))
def iso_c(ingredients: Ingredients, lambda_: float = 1.0) -> dict[str, Tensor]:
    """Add the task vectors of every matrix, and set all singular values of the sum to their mean.

    With ``sum_i tau_i = U S V^T`` the result is ``theta_base + lambda_ mean(S) U V^T``:
    directions that few models use weigh as much as those that all use.

    Args:
        ingredients: models, weights and base. Task vectors are added by weight, relative to the mean weight, so that
            equal weights give the paper's sum. What is no matrix is averaged; see `merge_matrices`.
        lambda_: factor on what is added to the base model (the paper's alpha, chosen on validation data there).

    Returns:
        The merged state, each tensor in the first model's dtype. The mean is over singular values that are not zero to
        rounding; the paper takes all, which is the same where the sum has full rank, and else adds directions that no
        model has.

    Raises:
        InputError: integer buffers that differ between the models.
    """

    def merge(changes: Tensor, factors: Tensor, least: float) -> Tensor:
        left, values, right = decompose(weighted_sum(changes, factors.tolist()), least)
        return values.mean() * (left @ right) if len(values) else changes[0] * 0

    return merge_matrices(ingredients, lambda_, merge)
