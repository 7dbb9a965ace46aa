"""Closed forms: the group element that brings a source closest to an anchor.

Everything here is about one space with the rest of the model held fixed. Its vectors are rows of two stacks, the
source's A and the anchor's B; C = B A^T correlates them, and the best element maximises <G, C>. Decompositions are
done in float64 whatever the inputs are.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fusionlab.symmetry.groups import (
    Group,
    Invertible,
    Orthogonal,
    OrthogonalFixingOnes,
    Rotary,
    Scale,
    complement_of_ones,
    embed_beside_ones,
)

Rescale = Literal["off", "sequential", "joint"]

# Decompositions up to this size are small: of one head, not of a residual stream.
SMALL = 256


def procrustes(correlation: Tensor) -> tuple[Tensor, Tensor]:
    """The orthogonal matrix closest to turning the source into the anchor.

    Schönemann (1966); with the paper's R = U V^T of Theorem 4.1 transposed, since G acts from the left here.

    Args:
        correlation: C = B A^T, shape ``(..., n, n)``; the source's vectors A and the anchor's B are columns.

    Returns:
        ``argmax_G <G, C>`` over O(n), shape ``(..., n, n)``, and the maximum (the nuclear norm), shape ``(...)``;
        both float64.
    """
    u, s, vh = torch.linalg.svd(correlation.double())
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


@contextmanager
def _one_thread() -> Iterator[None]:
    """Decompose on one core: threads gain nothing on small matrices, and wait for each other where cores are shared."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def solve(group: Group, correlation: Correlation, rescale: Rescale) -> tuple[Tensor, Tensor]:
    """The element that brings a source closest to an anchor.

    Args:
        group: what may act; of an invertible space, rotations and scales of all coordinates together are considered.
        correlation: of one space, any number of copies at once.
        rescale: ``off`` for length-preserving elements; ``sequential`` for the paper's Eq. 11 and 12, the best scale
            after the best rotation; ``joint`` for the global optimum over both.

    Returns:
        The elements, shape ``(..., *element)``, and their values, shape ``(...)``: the squared distance that an
        element leaves is a constant minus its value. Both float64.
    """
    if group.size > SMALL:
        return _SOLVERS[type(group)](group, correlation, rescale)
    with _one_thread():
        return _SOLVERS[type(group)](group, correlation, rescale)


def _solve_orthogonal(group: Group, correlation: Correlation, rescale: Rescale) -> tuple[Tensor, Tensor]:
    element, value = procrustes(correlation.primal + correlation.dual)
    return element, 2 * value - correlation.primal_norm.sum(-1) - correlation.dual_norm.sum(-1)


def _solve_beside_ones(group: Group, correlation: Correlation, rescale: Rescale) -> tuple[Tensor, Tensor]:
    """Procrustes on the complement of the all-ones vector, which keeps its place."""
    total = (correlation.primal + correlation.dual).double()
    basis = complement_of_ones(group.size).to(total)
    inside, value = procrustes(basis.mT @ total @ basis)
    value = value + total.sum((-2, -1)) / group.size
    return embed_beside_ones(inside), 2 * value - correlation.primal_norm.sum(-1) - correlation.dual_norm.sum(-1)


def _solve_invertible(group: Group, correlation: Correlation, rescale: Rescale) -> tuple[Tensor, Tensor]:
    """A rotation, alone or with a positive scale."""
    primal, dual = correlation.primal.double(), correlation.dual.double()
    lengths = correlation.primal_norm.double().sum(-1), correlation.dual_norm.double().sum(-1)
    rotation, scale, value = _rotate_and_scale(_Matrices(), primal, dual, *lengths, rescale)
    return scale[..., None, None] * rotation, value


def _solve_rotary(group: Group, correlation: Correlation, rescale: Rescale) -> tuple[Tensor, Tensor]:
    """A rotation of every plane, alone or with a positive scale: complex numbers in place of matrices."""
    assert isinstance(group, Rotary)

    def by_plane(norms: Tensor) -> Tensor:
        first, second = group.planes(norms.double().unsqueeze(-1))
        return (first + second).squeeze(-1)

    rotation, scale, value = _rotate_and_scale(
        _Planes(),
        plane_correlations(group, correlation.primal),
        plane_correlations(group, correlation.dual),
        by_plane(correlation.primal_norm),
        by_plane(correlation.dual_norm),
        rescale,
    )
    return torch.view_as_real(scale * rotation), value.sum(-1)


def plane_correlations(group: Rotary, correlation: Tensor) -> Tensor:
    """What a correlation says of every plane: the complex s with ``<G, C> = Re(conj(c) s)``, ``G`` the rotation by c.

    Args:
        correlation: shape ``(..., n, n)``.

    Returns:
        Shape ``(..., n / 2)``, complex.
    """
    order = torch.arange(group.size).unsqueeze(-1)
    x, y = (index.squeeze(-1).to(correlation.device) for index in group.planes(order))
    matrix = correlation.double()
    real = matrix[..., x, x] + matrix[..., y, y]
    return torch.complex(real, matrix[..., y, x] - matrix[..., x, y])


def _solve_scale(group: Group, correlation: Correlation, rescale: Rescale) -> tuple[Tensor, Tensor]:
    """A factor for every coordinate; where rescaling is off, its sign at most."""
    assert isinstance(group, Scale)
    primal, dual = (c.diagonal(dim1=-2, dim2=-1).double() for c in (correlation.primal, correlation.dual))
    p_norm, d_norm = correlation.primal_norm.double(), correlation.dual_norm.double()
    if rescale == "off":
        factor = torch.where(primal + dual < 0, -1.0, 1.0) if group.signed else torch.ones_like(primal)
        factor = factor.to(primal)
    else:
        factor = best_scale(primal, dual, p_norm, d_norm, positive=not group.signed)
    value = 2 * (factor * primal + dual / factor) - factor**2 * p_norm - d_norm / factor**2
    return factor, value.sum(-1)


_SOLVERS: dict[type[Group], Callable[[Group, Correlation, Rescale], tuple[Tensor, Tensor]]] = {
    Orthogonal: _solve_orthogonal,
    OrthogonalFixingOnes: _solve_beside_ones,
    Invertible: _solve_invertible,
    Rotary: _solve_rotary,
    Scale: _solve_scale,
}


class _Matrices:
    """Rotations of a whole space: correlations are matrices."""

    def best(self, c: Tensor) -> Tensor:
        return procrustes(c)[0]

    def most(self, c: Tensor) -> Tensor:
        return torch.linalg.matrix_norm(c, "nuc")

    def inner(self, rotation: Tensor, c: Tensor) -> Tensor:
        return (rotation * c).sum((-2, -1))

    def times(self, scale: Tensor, c: Tensor) -> Tensor:
        return scale[..., None, None] * c


class _Planes:
    """Rotations of planes: correlations are complex numbers."""

    def best(self, c: Tensor) -> Tensor:
        return torch.where(c == 0, torch.ones_like(c), c / c.abs().clamp_min(torch.finfo(torch.float64).tiny))

    def most(self, c: Tensor) -> Tensor:
        return c.abs()

    def inner(self, rotation: Tensor, c: Tensor) -> Tensor:
        return (rotation.conj() * c).real

    def times(self, scale: Tensor, c: Tensor) -> Tensor:
        return scale * c


def _rotate_and_scale(
    kind: _Matrices | _Planes, primal: Tensor, dual: Tensor, p_norm: Tensor, d_norm: Tensor, rescale: Rescale
) -> tuple[Tensor, Tensor, Tensor]:
    """The best rotation, its scale, and their value."""
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
    roots = _real_roots(primal, dual, primal_norm, dual_norm)
    if positive:
        roots = torch.where(roots > 0, roots, torch.nan)
    candidates = torch.cat([roots, torch.ones_like(roots[..., :1])], -1)
    p, d, pn, dn = (x[..., None] for x in (primal, dual, primal_norm, dual_norm))
    cost = candidates**2 * pn + dn / candidates**2 - 2 * (candidates * p + d / candidates)
    best = cost.nan_to_num(nan=torch.inf, posinf=torch.inf).argmin(-1, keepdim=True)
    return candidates.gather(-1, best)[..., 0]


def _real_roots(primal: Tensor, dual: Tensor, primal_norm: Tensor, dual_norm: Tensor) -> Tensor:
    """Real roots of the quartic of `best_scale`, shape ``(..., 4)``, NaN for the others (all, where a norm is zero)."""
    usable = (primal_norm > 0) & (dual_norm > 0)
    leading = torch.where(usable, primal_norm, torch.ones_like(primal_norm))
    companion = leading.new_zeros(*leading.shape, 4, 4)
    companion[..., 1, 0] = companion[..., 2, 1] = companion[..., 3, 2] = 1
    companion[..., 0, 3] = dual_norm / leading
    companion[..., 1, 3] = -dual / leading
    companion[..., 3, 3] = primal / leading
    roots = torch.linalg.eigvals(companion)
    real = usable[..., None] & (roots.imag.abs() <= 1e-7 * roots.abs())
    return torch.where(real, roots.real, torch.nan)


def _joint(
    kind: _Matrices | _Planes,
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
        _real_roots(sign * p_most, -sign * d_most, p_norm, d_norm).nan_to_num(nan=0).amax(-1) for sign in (-1, 1)
    )
    low, high = (torch.where(usable, end, torch.ones_like(end)).log() for end in (low, high))
    centre, reach = (low + high) / 2, (high - low) / 2
    scale, best = torch.ones_like(p_norm), value(torch.ones_like(p_norm))
    for _ in range(levels):
        for fraction in torch.linspace(-1, 1, grid, dtype=torch.float64).tolist():
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
