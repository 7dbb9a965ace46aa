"""TSV-M (Gargiulo et al., "Task singular vectors: reducing task interference in model merging", 2025)."""

import torch
from torch import Tensor

from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.matrices import decompose, merge_matrices, nearest_isometry
from fusionlab.merging.registry import merge_method


@merge_method("tsv_m", needs=("base",), unit="parameter", holds=(13, 4))
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
        singular values of their task vector. Singular values that are zero to rounding have no directions of their own
        and take no part.

    Raises:
        InputError: integer buffers that differ between the models.
    """

    def merge(changes: Tensor, factors: Tensor, least: float) -> Tensor:
        rank = max(1, min(changes.shape[1:]) // len(changes))
        parts = [decompose(change, least) for change in changes]
        lefts = torch.cat([left[:, :rank] for left, _, _ in parts], dim=1)
        values = torch.cat([factor * sizes[:rank] for factor, (_, sizes, _) in zip(factors, parts, strict=True)])
        rights = torch.cat([right[:rank] for _, _, right in parts], dim=0)
        if not len(values):
            return changes[0] * 0
        return nearest_isometry(lefts) * values @ nearest_isometry(rights)

    return merge_matrices(ingredients, lambda_, merge)
