"""The Karcher mean: the Riemannian centre of mass on a sphere (Karcher, 1977; Buss and Fillmore, 2001)."""

import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.registry import merge_method


@merge_method("karcher")
def karcher(ingredients: Ingredients, iterations: int = 10, tol: float = 1e-5) -> dict[str, Tensor]:
    """Average directions on the sphere and lengths by themselves, for each parameter, flattened.

    The mean direction m minimises ``sum_i w_i angle(m, u_i)^2`` over the unit sphere, with ``u_i = a_i / |a_i|``. It is
    found from the normalised weighted mean by steps along the sphere: the mean of the logarithms of u_i at m is where
    the next m lies (Buss and Fillmore, "Spherical averages and applications to spherical splines and interpolation",
    2001, algorithm A1). The length is ``sum_i w_i |a_i|``. For two models this is slerp on directions.

    Args:
        ingredients: models and weights.
        iterations: the most steps for each parameter, from 1 up.
        tol: stop when a step is shorter than this angle, in radians.

    Returns:
        The merged state, each tensor in the first model's dtype; all arithmetic is done in float64.

    Raises:
        InputError: no iterations, or integer buffers that differ between the models.
    """
    if iterations < 1:
        raise InputError(f"iterations is {iterations}; expected 1 or more")
    merged = ingredients.averaged()
    for name in ingredients.floating():
        tensors = [state[name].to(merged[name].device, torch.float64) for state in ingredients.states]
        products = torch.tensor([[float((a * b).sum()) for b in tensors] for a in tensors], dtype=torch.float64)
        lengths = products.diagonal().sqrt()
        weights = lengths.new_tensor(ingredients.weights)
        # A zero tensor has no direction; it counts in the length only.
        present = (lengths > 0) & (weights > 0)
        if present.any():
            cosines = products[present][:, present] / torch.outer(lengths[present], lengths[present])
            mean = _mean_direction(cosines, weights[present] / weights[present].sum(), iterations, tol)
            factors = torch.zeros_like(lengths)
            factors[present] = (weights @ lengths) * mean / lengths[present]
            total = torch.zeros_like(tensors[0])
            for factor, tensor in zip(factors.tolist(), tensors, strict=True):
                total.add_(tensor, alpha=factor)
            merged[name] = total.to(merged[name].dtype)
    return merged


def _mean_direction(cosines: Tensor, weights: Tensor, iterations: int, tol: float) -> Tensor:
    """The weighted Karcher mean of unit vectors, as its coefficients.

    All happens in the span of the vectors, so that their inner products are all there is to know.

    Args:
        cosines: the inner products, shape ``(count, count)``.
        weights: summing to 1, shape ``(count,)``.

    Returns:
        Shape ``(count,)``: the mean is the sum of the vectors with these factors.
    """
    mean = weights
    if mean @ cosines @ mean < 1e-24:  # Opposite directions: every start is as good as another.
        mean = torch.eye(len(weights)).to(weights)[0]
    mean = mean / _length(mean, cosines)
    for _ in range(iterations):
        step = weights @ _logarithms(mean, cosines)
        angle = _length(step, cosines)
        if angle > 0:
            mean = angle.cos() * mean + angle.sin() * step / angle
            mean = mean / _length(mean, cosines)
        if angle < tol:
            break
    return mean


def _logarithms(mean: Tensor, cosines: Tensor) -> Tensor:
    """For each unit vector, the tangent at `mean` that leads to it, as long as the angle between the two."""
    to_mean = cosines @ mean
    tangents = torch.eye(len(mean)).to(mean) - to_mean[:, None] * mean
    sines = _length(tangents, cosines)
    scale = torch.where(sines > 0, torch.atan2(sines, to_mean) / sines, 1.0)
    return scale[:, None] * tangents


def _length(coefficients: Tensor, cosines: Tensor) -> Tensor:
    """The length of a sum of the unit vectors, or of each of several sums."""
    return ((coefficients @ cosines) * coefficients).sum(-1).clamp_min(0).sqrt()
