"""Spherical linear interpolation of two models (Shoemake, "Animating rotation with quaternion curves", 1985)."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.merging.ingredients import Ingredients, working_type
from fusionlab.merging.products import inner_products
from fusionlab.merging.registry import merge_method

# Two tensors with a cosine beyond this are interpolated linearly: the arc and the chord differ by 1e-4, or, where they
# point in opposite directions, there is no one arc.
PARALLEL = 0.9995


def _refuse(weights: Sequence[float], t: float | None) -> None:
    if len(weights) != 2:
        raise InputError(f"slerp was given {len(weights)} models; expected exactly two")
    if t is None:
        return
    if not 0 <= t <= 1:
        raise InputError(f"t is {t}; expected a number from 0 to 1")
    if weights[0] != weights[1]:
        raise InputError(
            f"slerp has t {t} and weights {weights[0]:g} and {weights[1]:g}; expected one of them, as t is the second "
            f"model's weight"
        )


@merge_method("slerp", unit="parameter", refuse=_refuse, holds=(0, 6))
def slerp(ingredients: Ingredients, t: float | None = None) -> dict[str, Tensor]:
    """Go along the arc between two models, for each parameter by itself, flattened.

    ``sin((1 - t) omega) / sin(omega) a + sin(t omega) / sin(omega) b`` with omega the angle between a and b. The
    convention is mergekit's: the angle is that of the directions, the tensors keep their lengths, and (almost) parallel
    tensors are interpolated linearly.

    Args:
        ingredients: exactly two models.
        t: where on the arc, from 0 (the first model) to 1 (the second); the second model's weight if None.

    Returns:
        The merged state, each tensor in the first model's dtype.

    Raises:
        InputError: another number of models, a t out of range, or integer buffers that differ.
    """
    position = ingredients.weights[1] if t is None else t
    first, second = ingredients.states

    def on_arc(name: str) -> Tensor:
        dtype = working_type(first[name])
        return _interpolate(first[name].to(dtype), second[name].to(first[name].device, dtype), position)

    return ingredients.each(on_arc)


def _interpolate(a: Tensor, b: Tensor, t: float) -> Tensor:
    products = inner_products([a, b])
    lengths = float(products.diagonal().sqrt().prod())
    cosine = float(products[0, 1]) / lengths if lengths > 0 else 1.0
    if abs(cosine) > PARALLEL:
        return torch.mul(a, 1 - t).add_(b, alpha=t)
    omega = math.acos(cosine)
    return torch.mul(a, math.sin((1 - t) * omega) / math.sin(omega)).add_(
        b, alpha=math.sin(t * omega) / math.sin(omega)
    )
