"""Merges of task vectors that look at singular vectors: what counts as a matrix, and what becomes of the rest."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fusionlab.decompositions import svd
from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.task_vectors import add_to_base, base_of, task_vectors, weighted_sum

# Numbers of a tensor that are looked at together, of the first piece and of others.
_FIRST, _PIECE = 2**10, 2**18
# Singular values and both bases of a matrix: U (rows, rank), s (rank), V^T (rank, columns).
Decomposed = tuple[Tensor, Tensor, Tensor]


def as_matrix(shape: Sequence[int]) -> tuple[int, int] | None:
    """Rows and columns of the matrix that `merge_matrices` takes a parameter as; None for what is no matrix."""
    return (shape[0], math.prod(shape[1:])) if len(shape) in (2, 4, 5) and 0 not in shape else None


def merge_matrices(
    ingredients: Ingredients, lambda_: float, merge: Callable[[Tensor, Tensor, float], Tensor]
) -> dict[str, Tensor]:
    """The base model with the task vectors of every matrix merged, and the mean of those of everything else.

    A parameter of two dimensions is a matrix, ``(out, in)`` for a linear layer; embeddings are, of positions too. One
    of four or five is a convolution, taken as the matrix ``(out, in * kernel)``: what it applies to every patch, but
    for convolutions in groups, whose rows read different channels. Vectors, numbers and parameters of three dimensions
    (positions of a ViT, experts in a stack) are averaged by weight.

    Args:
        ingredients: models, weights and base. Models without a weight take no part.
        lambda_: factor on what is added to the base model, mean or not.
        merge: of task vectors ``(models, out, in)`` in float32 or better; a factor for each model, shape ``(models,)``:
            its weight divided by the mean weight, so that equal weights are ones; and a size that singular values have
            by the rounding of the models' numbers alone, see `decompose`.

    Raises:
        InputError: integer buffers differ between the models.
    """
    present = ingredients.present()

    def change(name: str) -> Tensor:
        changes = task_vectors(present, name)
        mean = weighted_sum(changes, present.weights)
        # What is not finite has no singular values. Its mean is no number either, which is refused where it is written.
        if as_matrix(mean.shape) is None or not bool(mean.isfinite().all()):
            return lambda_ * mean
        factors = len(changes) * changes.new_tensor(present.weights)
        flat = changes.flatten(2)
        return lambda_ * merge(flat, factors, _noise(present, name, *flat.shape[1:])).reshape(mean.shape)

    return add_to_base(ingredients, change)


def _noise(ingredients: Ingredients, name: str, rows: int, columns: int) -> float:
    """The largest singular value of a sum of errors that rounding the models' numbers to their type makes.

    Errors are at most half a unit in the last place, so their mean square is at most ``(eps |theta|)^2 / 12``; a matrix
    of independent ones has singular values up to their size times ``sqrt(rows) + sqrt(columns)``.
    """
    tensors = [state[name] for state in ingredients.states]
    eps = max(map(_rounded_by, (base_of(ingredients)[name], *tensors)))
    norms = [float(torch.linalg.vector_norm(tensor, dtype=torch.float64)) for tensor in tensors]
    size = math.hypot(*norms) / math.sqrt(rows * columns)
    return eps / math.sqrt(12) * size * (math.sqrt(rows) + math.sqrt(columns))


def _rounded_by(tensor: Tensor) -> float:
    """The relative size of a unit in the last place of the type that a tensor's numbers were rounded to.

    Its own type, or a narrower one that it was widened from: that has every one of them.
    """
    own = torch.finfo(tensor.dtype).eps
    for narrow in (torch.bfloat16, torch.float16, torch.float32):
        eps = torch.finfo(narrow).eps
        if eps > own and bool(tensor.any()) and _has_every(tensor, narrow):
            return eps
    return own


def _has_every(tensor: Tensor, narrow: torch.dtype) -> bool:
    """True if a type has every number of a tensor; a short piece is looked at first, which most tensors fail at."""
    count = tensor.numel()
    bounds = [0, *range(min(_FIRST, count), count, _PIECE), count]
    for start, end in itertools.pairwise(bounds):
        piece = tensor.take(torch.arange(start, end, device=tensor.device))
        if not torch.equal(piece.to(narrow).to(piece), piece):
            return False
    return True


def rounding(largest: float, matrix: Tensor) -> float:
    """The size below which singular values of a matrix are errors of computing with matrices of a largest one."""
    return 4 * torch.finfo(matrix.dtype).eps * math.sqrt(max(matrix.shape[-2:])) * largest


def decompose(matrix: Tensor, least: float = 0.0) -> Decomposed:
    """The singular value decomposition without singular values that are zero to rounding, largest first.

    Args:
        matrix: of any shape with numbers.
        least: singular values up to this one count as zero too: of task vectors, those that the rounding of the models
            makes.
    """
    left, values, right = svd(matrix, full_matrices=False)
    rank = int((values > max(least, rounding(float(values[0]), matrix))).sum())
    return left[:, :rank], values[:rank], right[:rank]


def nearest_isometry(matrix: Tensor) -> Tensor:
    """The orthogonal factor of the polar decomposition: the matrix with all singular values set to 1, zeros left zeros.

    Of all matrices with orthonormal columns (or rows) it is the nearest in the Frobenius norm (orthogonal Procrustes).
    Directions in which the matrix is zero stay so, which keeps the result unique. They are those with singular values
    of at most ``eps^(2/3)``: singular vectors of small singular values are less exact than other numbers.

    Args:
        matrix: of unit vectors side by side, as columns or as rows.
    """
    left, _, right = decompose(matrix, torch.finfo(matrix.dtype).eps ** (2 / 3))
    return left @ right
