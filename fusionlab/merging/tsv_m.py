"""TSV-M (Gargiulo et al., "Task singular vectors: reducing task interference in model merging", 2025)."""

import torch
from torch import Tensor

from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.matrices import merge_matrices, nearest_isometry
from fusionlab.merging.registry import merge_method


@merge_method("tsv_m", needs=("base",), unit="parameter")
def tsv_m(ingredients: Ingredients, lambda_: float = 1.0) -> dict[str, Tensor]:
    """Give each model an n-th of every matrix's singular directions, and make all of these orthogonal.

    Of each task vector ``tau_i = U_i S_i V_i^T`` the r / n largest singular values are kept (n models, r the smaller
    side; rounded down, at least one). With ``U = [U_1 .. U_n]``, V alike and S the block diagonal of all S_i, the
    columns of U and of V are replaced by the nearest orthonormal ones, by Procrustes: ``theta_base + lambda_ polar(U) S
    polar(V)^T``. Models that share directions no longer add up along them.

    Args:
        ingredients: models, weights and base. A model's S_i is multiplied by its weight, relative to the mean weight;
            models without weight take no share. What is no matrix is averaged; see `merge_matrices`.
        lambda_: factor on what is added to the base model (the paper's alpha, which is 1).

    Returns:
        The merged state, each tensor in the first model's dtype. Of n equal models it holds the r / n largest
        singular values of their task vector.

    Raises:
        InputError: integer buffers that differ between the models.
    """

    def merge(changes: Tensor, factors: Tensor) -> Tensor:
        rank = max(1, min(changes.shape[1:]) // len(changes))
        left, values, right = torch.linalg.svd(changes, full_matrices=False)
        values = (factors[:, None] * values[:, :rank]).flatten()
        lefts = torch.cat(tuple(left[:, :, :rank]), dim=1)
        rights = torch.cat(tuple(right[:, :rank]), dim=0)
        return nearest_isometry(lefts) * values @ nearest_isometry(rights)

    return merge_matrices(ingredients, lambda_, merge)
