"""Balanced forms of two Gram matrices, in closed form: what writes to a space gets the lengths of what reads it."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fusionlab.decompositions import svd

# Passes of Newton's method.
_STEPS = 60
# Eigenvalues of a Gram matrix below this part of the largest are zero but for rounding.
RANK = 1e-12


def balancing_factors(primal: Tensor, dual: Tensor) -> Tensor:
    """The positive factor ``a`` with ``a^2 |A|^2 = |D|^2 / a^2``.

    Args:
        primal: ``|A|^2``, any shape.
        dual: ``|D|^2``, of the same shape.

    Returns:
        Factors of that shape; 1 where one of the two is zero.
    """
    usable = (primal > 0) & (dual > 0)
    return torch.where(usable, dual / primal, 1.0).pow(0.25)


def balancing_power(squares: Mapping[int, Tensor]) -> Tensor:
    """The positive factor x with ``sum_p p n_p x^(2 p) = 0``, at which the parameters that it acts on are shortest.

    For the powers 1 and -1 it is `balancing_factors`. Otherwise Newton's method finds the logarithm of x at which those
    of the sums over positive and over negative powers are equal; their difference rises, by slopes between two bounds.

    Args:
        squares: squared lengths n by power p, not zero, all of one shape.

    Returns:
        Factors of that shape; 1 where there is nothing on one side.
    """
    some = next(iter(squares.values()))
    if squares.keys() <= {1, -1}:
        return balancing_factors(squares.get(1, torch.zeros_like(some)), squares.get(-1, torch.zeros_like(some)))
    ordered = sorted(squares)
    p = torch.tensor(ordered, dtype=some.dtype, device=some.device).reshape(-1, *[1] * some.ndim)
    n = torch.stack([squares[power] for power in ordered])
    usable = ((n > 0) & (p > 0)).any(0) & ((n > 0) & (p < 0)).any(0)
    slopes = torch.where(usable, p.abs() * n, 1.0).log()
    t, steepest = torch.zeros_like(some), 4 * p.abs().amax()
    for step in range(_STEPS):
        sides = [torch.where(side, slopes + 2 * p * t, -torch.inf) for side in (p > 0, p < 0)]
        gap = sides[0].logsumexp(0) - sides[1].logsumexp(0)
        slope = sum(2 * (side.softmax(0) * p.abs()).sum(0) for side in sides)
        # Half of the steps are too short for sure, as long as Newton's might go too far.
        t = t - gap / (slope if step % 2 else steepest)
    return torch.where(usable, t.exp(), 1.0)


def balancing_matrices(primal: Tensor, dual: Tensor) -> Tensor:
    """The positive G with ``G P G^T = G^-T D G^-1``, for each copy.

    M = G^T G solves ``M P M = D``: it is the geometric mean of P^-1 and D, and G its positive square root (Bhatia,
    "Positive Definite Matrices", 2007, section 4.1). Where P or D is singular (fewer positions than features, a head
    wider than the model), only the directions that are both written and read can be balanced. What is written and
    never read, or read and never written, is made orthogonal to them, and its Gram matrix a multiple of the identity:
    their mean eigenvalue. That is one O(n) orbit as well.

    Args:
        primal: P, shape ``(*copies, n, n)``, symmetric and positive, of any rank.
        dual: D, likewise.

    Returns:
        G, shape ``(*copies, n, n)``; the identity where nothing is both written and read.
    """
    identity = torch.eye(primal.shape[-1]).to(primal).expand(primal.shape)
    regular = (_condition(primal) < 1 / RANK) & (_condition(dual) < 1 / RANK)
    safe = [torch.where(regular[..., None, None], gram, identity) for gram in (primal, dual)]
    root, inverse_root = _power(safe[0], 0.5), _power(safe[0], -0.5)
    squared = inverse_root @ _power(root @ safe[1] @ root, 0.5) @ inverse_root
    element = _power(squared, 0.5)
    for index in (~regular).nonzero().tolist():
        copy = tuple(index)
        element[copy] = _balancing_within(primal[copy], dual[copy])
    return element


def _balancing_within(primal: Tensor, dual: Tensor) -> Tensor:
    """The positive G that balances what two Gram matrices have in common, and settles the rest.

    See `balancing_matrices`.

    Args:
        primal: P, shape ``(n, n)``, of any rank.
        dual: D, likewise.
    """
    size = len(primal)
    values, written = _range(primal)
    rank = written.shape[1]
    complement = torch.linalg.qr(written, mode="complete").Q[:, rank:]
    # In this basis all that is written is in the first coordinates, and P is the identity there.
    basis = torch.cat([written / values.sqrt(), complement], 1)
    inverse = torch.cat([written * values.sqrt(), complement], 1)
    seen = inverse.mT @ dual @ inverse
    strengths, shared = _range(seen[:rank, :rank])
    common = shared.shape[1]
    if common == 0:
        return torch.eye(size).to(primal)
    mean = strengths.sqrt().mean()
    # What reads none of it is left when what reads the common directions is taken out of all other readers.
    readers = seen[rank:, :rank] @ shared / strengths
    rest = seen[rank:, rank:] - readers * strengths @ readers.mT
    # What is taken out brings its rounding along; nothing is left to take out on the next pass.
    removed = strengths[-1] * torch.linalg.matrix_norm(readers, 2) ** 2 if rank < size else 0
    lengths, only_read = _range(rest, torch.linalg.matrix_norm(dual, 2) + removed)
    turned = torch.linalg.qr(shared, mode="complete").Q
    turned[:, :common] = shared
    factors = torch.cat([strengths.pow(0.25), mean.sqrt().expand(rank - common)])
    shrink = only_read * ((lengths / mean).sqrt() - 1) @ only_read.mT + torch.eye(size - rank).to(primal)
    transform = torch.zeros_like(primal)
    transform[:rank, :rank] = factors[:, None] * turned.mT
    transform[:common, rank:] = factors[:common, None] * readers.mT
    transform[rank:, rank:] = shrink
    # The symmetric factor of the polar decomposition: a rotation more changes no Gram matrix's balance.
    _, stretch, directions = svd(transform @ basis.mT)
    return directions.mT * stretch @ directions


def _range(gram: Tensor, largest: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Eigenvalues of a Gram matrix that are not zero but for rounding, and their eigenvectors as columns.

    Args:
        largest: the eigenvalue that they are measured by, the matrix's own if None.
    """
    values, vectors = torch.linalg.eigh((gram + gram.mT) / 2)
    if largest is None:
        largest = values[-1:].sum()
    kept = values > RANK * largest
    return values[kept], vectors[:, kept]


def _condition(gram: Tensor) -> Tensor:
    eigenvalues = torch.linalg.eigvalsh(gram)
    return torch.where(eigenvalues[..., 0] > 0, eigenvalues[..., -1] / eigenvalues[..., 0], torch.inf)


def _power(matrix: Tensor, exponent: float) -> Tensor:
    """A real power of a symmetric positive definite matrix."""
    values, vectors = torch.linalg.eigh((matrix + matrix.mT) / 2)
    return vectors * values.clamp_min(torch.finfo(values.dtype).tiny).pow(exponent).unsqueeze(-2) @ vectors.mT
