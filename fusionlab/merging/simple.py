"""Weighted averaging of parameters (Wortsman et al., "Model soups", 2022, uniform soup)."""

from torch import Tensor

from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.registry import merge_method


@merge_method("simple", unit="number")
def simple(ingredients: Ingredients) -> dict[str, Tensor]:
    """The weighted mean of every floating-point parameter and buffer: ``sum_i w_i theta_i``.

    Returns:
        The merged state, each tensor in the first model's dtype; the sum is taken in float32 or better.

    Raises:
        InputError: integer buffers differ between the models; there is no mean of those.
    """
    return ingredients.averaged()
