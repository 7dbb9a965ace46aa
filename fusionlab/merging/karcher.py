"""The Karcher mean: the Riemannian centre of mass on a sphere (Karcher, 1977; Buss and Fillmore, 2001)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.registry import merge_method

# What is left of a unit vector after projection, below which it lies in the span of the others: a hundred roundings.
DEPENDENT = 1e-14
# Two minima whose mean squared angles differ by less are equally good; the one found first is taken.
TIE = 1e-12


def _refuse(_: Sequence[float], iterations: int, **__: Any) -> None:
    if iterations < 1:
        raise InputError(f"iterations is {iterations}; expected 1 or more")


@merge_method("karcher", unit="parameter", refuse=_refuse, holds=(0, 7))
def karcher(ingredients: Ingredients, iterations: int = 10, tol: float = 1e-5) -> dict[str, Tensor]:
    """Average directions on the sphere and lengths by themselves, for each parameter, flattened.

    The mean direction m minimises ``sum_i w_i angle(m, u_i)^2`` over the unit sphere, with ``u_i = a_i / |a_i|``. It is
    found from the normalised weighted mean by steps along the sphere: the mean of the logarithms of u_i at m is where
    the next m lies (Buss and Fillmore, "Spherical averages and applications to spherical splines and interpolation",
    2001, algorithm A1). The length is ``sum_i w_i |a_i|``. For two models this is slerp on directions.

    Directions within a right angle of m have no other mean (Afsari, "Riemannian L^p center of mass", 2011). Else there
    may be several local minima: the steps start from more points, and the least is taken. Exactly opposite directions
    have many means; any one of them is taken, at right angles to both where the weights are equal. A parameter of one
    number has two directions only: the sign is that of the larger weight, the first model's where they are equal.

    Args:
        ingredients: models and weights.
        iterations: the most steps from each start, from 1 up.
        tol: stop when a step is shorter than this angle, in radians.

    Returns:
        The merged state, each tensor in the first model's dtype; all arithmetic is done in float64.

    Raises:
        InputError: no iterations, or integer buffers that differ between the models.
    """

    def centre(name: str) -> Tensor:
        first = ingredients.states[0][name]
        tensors = torch.stack([state[name].to(first.device, torch.float64).flatten() for state in ingredients.states])
        lengths = torch.linalg.vector_norm(tensors, dim=1)
        weights = lengths.new_tensor(ingredients.weights)
        # A zero tensor has no direction; it counts in the length only.
        present = (lengths > 0) & (weights > 0)
        if not present.any():
            return ingredients.mean(name)
        directions = tensors[present] / lengths[present, None]
        basis, coordinates = spanning_basis(directions)
        mean = basis.mT @ _mean_direction(coordinates, weights[present] / weights[present].sum(), iterations, tol)
        return (weights @ lengths * mean).reshape(first.shape)

    return ingredients.each(centre)


def spanning_basis(directions: Tensor) -> tuple[Tensor, Tensor]:
    """An orthonormal basis of a space that holds some unit vectors and their mean, and their coordinates in it.

    Independent vectors have their mean in their span: it is a sum of them with positive factors. Dependent ones may
    have it outside (of two opposite ones it lies at right angles to both), so each that depends on those before it is
    replaced by a direction that is new. Inner products would not do in place of coordinates: of vectors that are
    opposite but for 1e-8 they do not say where the mean lies.

    Args:
        directions: shape ``(count, size)``; overwritten.

    Returns:
        The basis, shape ``(dimensions, size)``, and coordinates, shape ``(count, dimensions)``, with the smaller of
        `count` and `size` dimensions.
    """
    count, size = directions.shape
    dimensions = min(count, size)
    coordinates = directions.new_zeros(count, dimensions)
    for index, row in enumerate(directions):
        basis = directions[: min(index, dimensions)]
        coordinates[index, : len(basis)] = _take_out(row, basis)
        if index < dimensions:
            rest = torch.linalg.vector_norm(row)
            if rest > DEPENDENT:
                coordinates[index, index] = rest
            else:
                # Of all coordinate axes the one with the smallest share in the basis leaves most.
                row.zero_()
                row[basis.square().sum(0).argmin()] = 1
                _take_out(row, basis)
                rest = torch.linalg.vector_norm(row)
            row.div_(rest)
    return directions[:dimensions], coordinates


def _take_out(row: Tensor, basis: Tensor) -> Tensor:
    """Make a vector orthogonal to a basis, in place; returned is what was taken out, as coordinates.

    Done twice: the first pass leaves rounding errors that are large beside what is left of a nearly dependent vector.
    """
    taken = row.new_zeros(len(basis))
    for _ in range(2):
        for index, axis in enumerate(basis):
            share = axis @ row
            row.sub_(share * axis)
            taken[index] += share
    return taken


def _mean_direction(directions: Tensor, weights: Tensor, iterations: int, tol: float) -> Tensor:
    """The weighted Karcher mean of unit vectors.

    Args:
        directions: shape ``(count, dimensions)``.
        weights: summing to 1, shape ``(count,)``.

    Returns:
        Shape ``(dimensions,)``.
    """
    mean = weights @ directions
    start = mean if torch.linalg.vector_norm(mean) > DEPENDENT else directions[0]
    found = _descend(_normalised(start[None]), directions, weights, iterations, tol)
    if bool((directions @ found[0] > 0).all()):
        return found[0]
    found = torch.cat((found, _descend(_starts(directions), directions, weights, iterations, tol)))
    cosines, tangents = _tangents(found, directions)
    spread = torch.atan2(torch.linalg.vector_norm(tangents, dim=-1), cosines).square() @ weights
    return found[int((spread <= spread.min() + TIE).to(torch.uint8).argmax())]


def _starts(directions: Tensor) -> Tensor:
    """More points from which a mean may be found: each direction and each axis."""
    axes = torch.eye(directions.shape[1]).to(directions)
    return torch.cat((directions, axes))


def _descend(means: Tensor, directions: Tensor, weights: Tensor, iterations: int, tol: float) -> Tensor:
    """Steps from several points at once, shape ``(starts, dimensions)``, until all are shorter than `tol`."""
    for _ in range(iterations):
        cosines, tangents = _tangents(means, directions)
        sines = torch.linalg.vector_norm(tangents, dim=-1)
        # The logarithm of a direction is its tangent, as long as the angle. Of the opposite point it is not defined.
        scale = torch.where(sines > 0, torch.atan2(sines, cosines) / sines, 0)
        step = torch.einsum("c,sc,scd->sd", weights, scale, tangents)
        angle = torch.linalg.vector_norm(step, dim=-1, keepdim=True)
        means = torch.where(angle > 0, angle.cos() * means + angle.sin() * step / angle, means)
        means = _normalised(means)
        if bool((angle < tol).all()):
            break
    return means


def _tangents(means: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
    """The cosine of each mean and direction, shape ``(starts, count)``, and the direction's part at right angles."""
    cosines = means @ directions.mT
    return cosines, directions - cosines[..., None] * means[:, None]


def _normalised(vectors: Tensor) -> Tensor:
    return vectors / torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
