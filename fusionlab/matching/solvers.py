"""Closed forms that groups share: the rotation, and the scale, that bring a source closest to an anchor.

Everything here is about one space with the rest of the model held fixed. Its vectors are rows of two stacks, the
source's A and the anchor's B; C = B A^T correlates them, and the best element maximises <G, C>. Decompositions are
done in float64 whatever the inputs are.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fusionlab.decompositions import svd

Rescale = Literal["off", "sequential", "joint"]


def procrustes(correlation: Tensor) -> tuple[Tensor, Tensor]:
    """The orthogonal matrix closest to turning the source into the anchor.

    Schönemann (1966); with the paper's R = U V^T of Theorem 4.1 transposed, since G acts from the left here.

    Args:
        correlation: C = B A^T, shape ``(..., n, n)``; the source's vectors A and the anchor's B are columns.

    Returns:
        ``argmax_G <G, C>`` over O(n), shape ``(..., n, n)``, and the maximum (the nuclear norm), shape ``(...)``;
        both float64.
    """
    u, s, vh = svd(correlation.double())
    return u @ vh, s.sum(-1)


@dataclass(frozen=True)
class Correlation:
    """All that a continuous space needs to know of the two models.

    The source's stretches of parameters are split into those where the space acts primally (A) and dually (D).

    Attributes:
        primal: anchor times source transposed over the primal stretches, shape ``(..., n, n)``.
        dual: the same over the dual ones.
        primal_norm: squared norms of the source's coordinates over the primal stretches, shape ``(..., n)``.
        dual_norm: the same over the dual ones.
    """

    primal: Tensor
    dual: Tensor
    primal_norm: Tensor
    dual_norm: Tensor

    def unchanged(self) -> Tensor:
        """The value of the identity, shape ``(...)``."""
        diagonal = (self.primal + self.dual).diagonal(dim1=-2, dim2=-1).double()
        return (2 * diagonal - self.primal_norm - self.dual_norm).sum(-1)


class MatrixRotations:
    """Rotations of a whole space: correlations are matrices."""

    def best(self, c: Tensor) -> Tensor:
        return procrustes(c)[0]

    def most(self, c: Tensor) -> Tensor:
        return torch.linalg.matrix_norm(c, "nuc")

    def inner(self, rotation: Tensor, c: Tensor) -> Tensor:
        return (rotation * c).sum((-2, -1))

    def times(self, scale: Tensor, c: Tensor) -> Tensor:
        return scale[..., None, None] * c


class PlaneRotations:
    """Rotations of planes: correlations are complex numbers."""

    def best(self, c: Tensor) -> Tensor:
        return torch.where(c == 0, torch.ones_like(c), c / c.abs().clamp_min(torch.finfo(torch.float64).tiny))

    def most(self, c: Tensor) -> Tensor:
        return c.abs()

    def inner(self, rotation: Tensor, c: Tensor) -> Tensor:
        return (rotation.conj() * c).real

    def times(self, scale: Tensor, c: Tensor) -> Tensor:
        return scale * c


def rotate_and_scale(
    kind: MatrixRotations | PlaneRotations,
    primal: Tensor,
    dual: Tensor,
    p_norm: Tensor,
    d_norm: Tensor,
    rescale: Rescale,
) -> tuple[Tensor, Tensor, Tensor]:
    """The best rotation, its positive scale, and their value.

    Args:
        kind: what is turned, and so what the correlations are: matrices, or complex numbers.
        primal: correlation of the primal stretches.
        dual: of the dual ones.
        p_norm: squared norms of the source's primal stretches, a number for each rotation.
        d_norm: of its dual ones.
        rescale: as in `fusionlab.matching.groups.solve`.

    Returns:
        Rotations (of the correlations' shape), scales and values (both of the norms').
    """
    if rescale == "joint":
        rotation, scale = _joint(kind, primal, dual, p_norm, d_norm)
    else:
        rotation, scale = kind.best(primal + dual), torch.ones_like(p_norm)
        if rescale == "sequential":
            scale = best_scale(kind.inner(rotation, primal), kind.inner(rotation, dual), p_norm, d_norm)
    p, d = kind.inner(rotation, primal), kind.inner(rotation, dual)
    return rotation, scale, 2 * (scale * p + d / scale) - scale**2 * p_norm - d_norm / scale**2


def best_scale(primal: Tensor, dual: Tensor, primal_norm: Tensor, dual_norm: Tensor, positive: bool = False) -> Tensor:
    """The real ``a`` that minimises ``a^2 |A|^2 - 2 a <A, B> + |D|^2 / a^2 - 2 <D, E> / a``: the paper's Eq. 11.

    Its stationary points are the real roots of the quartic ``|A|^2 a^4 - <A, B> a^3 + <D, E> a - |D|^2`` (Eq. 12),
    found as eigenvalues of its companion matrix; the root with the smallest objective is taken.

    Args:
        primal: <A, B>, shape ``(...)``.
        dual: <D, E>.
        primal_norm: |A|^2.
        dual_norm: |D|^2.
        positive: whether only positive factors count.

    Returns:
        The scale, shape ``(...)``, never zero; 1 where one side of the source is zero, since then no scale is best.
    """
    primal, dual, primal_norm, dual_norm = torch.broadcast_tensors(
        primal.double(), dual.double(), primal_norm.double(), dual_norm.double()
    )
    roots = _quartic_roots(primal, dual, primal_norm, dual_norm)
    if positive:
        roots = torch.where(roots > 0, roots, torch.nan)
    candidates = torch.cat([roots, torch.ones_like(roots[..., :1])], -1)
    p, d, pn, dn = (x[..., None] for x in (primal, dual, primal_norm, dual_norm))
    cost = candidates**2 * pn + dn / candidates**2 - 2 * (candidates * p + d / candidates)
    best = cost.nan_to_num(nan=torch.inf, posinf=torch.inf).argmin(-1, keepdim=True)
    return candidates.gather(-1, best)[..., 0]


def real_roots(coefficients: Tensor) -> Tensor:
    """Real roots of polynomials with nothing but simple ones, as eigenvalues of their companion matrices.

    Args:
        coefficients: the constant first, shape ``(..., n + 1)``.

    Returns:
        Shape ``(..., n)``, NaN for those that are not real; all where the first or the last coefficient is zero.
    """
    usable = (coefficients[..., 0] != 0) & (coefficients[..., -1] != 0)
    leading = torch.where(usable, coefficients[..., -1], torch.ones_like(coefficients[..., -1]))
    size = coefficients.shape[-1] - 1
    companion = coefficients.new_zeros(*leading.shape, size, size)
    companion.diagonal(-1, -2, -1).fill_(1)
    companion[..., :, -1] = -coefficients[..., :-1] / leading[..., None]
    roots = torch.linalg.eigvals(companion)
    real = usable[..., None] & (roots.imag.abs() <= 1e-7 * roots.abs())
    return torch.where(real, roots.real, torch.nan)


def _quartic_roots(primal: Tensor, dual: Tensor, primal_norm: Tensor, dual_norm: Tensor) -> Tensor:
    """Real roots of the quartic of `best_scale`, shape ``(..., 4)``, NaN for the others (all, where a norm is zero)."""
    return real_roots(torch.stack([-dual_norm, dual, torch.zeros_like(dual), -primal, primal_norm], -1))


def _joint(
    kind: MatrixRotations | PlaneRotations,
    primal: Tensor,
    dual: Tensor,
    p_norm: Tensor,
    d_norm: Tensor,
    levels: int = 3,
    grid: int = 17,
    steps: int = 100,
) -> tuple[Tensor, Tensor]:
    """Rotation and positive scale together.

    For a fixed scale the rotation is Procrustes', so what is left is one function of the scale, with the nuclear
    norm in it. All its minima lie between the positive roots of two quartics (the extremes that any rotation could
    give). It may have several, close together, so a grid over that stretch zooms in on the lowest valley; then
    alternating the two exact solutions descends to its bottom.
    """
    p_most, d_most = kind.most(primal), kind.most(dual)
    usable = (p_norm > 0) & (d_norm > 0)

    def mixed(scale: Tensor) -> Tensor:
        return kind.times(scale, primal) + kind.times(1 / scale, dual)

    def value(scale: Tensor) -> Tensor:
        return 2 * kind.most(mixed(scale)) - scale**2 * p_norm - d_norm / scale**2

    # Each of these two quartics changes the sign of its coefficients once, so it has one positive root.
    low, high = (
        _quartic_roots(sign * p_most, -sign * d_most, p_norm, d_norm).nan_to_num(nan=0).amax(-1) for sign in (-1, 1)
    )
    low, high = (torch.where(usable, end, torch.ones_like(end)).log() for end in (low, high))
    centre, reach = (low + high) / 2, (high - low) / 2
    scale, best = torch.ones_like(p_norm), value(torch.ones_like(p_norm))
    for _ in range(levels):
        for fraction in torch.linspace(-1, 1, grid).tolist():
            trial = (centre + fraction * reach).exp()
            found = value(trial)
            better = usable & (found > best)
            scale, best = torch.where(better, trial, scale), torch.where(better, found, best)
        centre, reach = scale.log(), reach * 3 / (grid - 1)
    for _ in range(steps):
        rotation = kind.best(mixed(scale))
        # The best scale for this rotation may be negative: the same element with the rotation's sign turned.
        renewed = best_scale(kind.inner(rotation, primal), kind.inner(rotation, dual), p_norm, d_norm).abs()
        settled = bool(((renewed / scale).log().abs() < 1e-12).all())
        scale = renewed
        if settled:
            break
    return kind.best(mixed(scale)), scale
