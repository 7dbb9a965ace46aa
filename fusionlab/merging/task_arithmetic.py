"""Task arithmetic (Ilharco et al., "Editing models with task arithmetic", 2023)."""

from torch import Tensor

from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.registry import merge_method
from fusionlab.merging.task_vectors import add_to_base, task_vectors, weighted_sum


@merge_method("task_arithmetic", needs=("base",), unit="number")
def task_arithmetic(ingredients: Ingredients, lambda_: float = 1.0) -> dict[str, Tensor]:
    """Add the task vectors to the base model: ``theta_base + lambda_ sum_i w_i tau_i``.

    Args:
        ingredients: models, weights and base.
        lambda_: how far to go; 1 gives the weighted mean of the models. The weights sum to 1, so the paper's plain sum
            of n task vectors with factor lambda is ``lambda_ = n lambda`` with equal weights.

    Returns:
        The merged state, each tensor in the first model's dtype.

    Raises:
        InputError: integer buffers differ between the models.
    """
    return add_to_base(
        ingredients, lambda name: lambda_ * weighted_sum(task_vectors(ingredients, name), ingredients.weights)
    )
