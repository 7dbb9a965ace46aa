"""The balanced gauge: a canonical form of what lies inside heads, reached without changing the function.

Balancing is itself an alignment (an element of every GL space), so it is exact, invertible and composes with the
alignment that matching finds.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from fusionlab.symmetry.alignment import Alignment
from fusionlab.symmetry.axes import leaves, spaces_of
from fusionlab.symmetry.blueprint import Blueprint, Space
from fusionlab.symmetry.groups import Invertible, Orthogonal, Rotary, Scale

# The most passes over all spaces; where they are coupled some twenty usually reach float64's precision.
SWEEPS = 100
# Eigenvalues of a Gram matrix below this part of the largest are zero but for rounding.
RANK = 1e-12


def balance(state: Mapping[str, Tensor], blueprint: Blueprint) -> Alignment:
    """Balance every invertible space: afterwards its writers and its readers have the same Gram matrix.

    For query Q and key K of a head (biases included) that is Q Q^T = K K^T, the form that the balanced factors
    ``S^1/2 U^T`` and ``S^1/2 V^T`` of Q^T K = U S V^T have; all balanced factorisations of one product differ by an
    orthogonal matrix only, which Procrustes then finds.

    With P and D the Gram matrices of the primal and the dual side, G P G^T = G^-T D G^-1 says that M = G^T G solves
    M P M = D. Its positive solution is the geometric mean of P^-1 and D, and G is M's positive square root (Bhatia,
    "Positive Definite Matrices", 2007, section 4.1).

    Where P or D is singular (fewer positions than features, a head wider than the model), only the directions that are
    both written and read can be balanced. What is written and never read, or read and never written, is made orthogonal
    to them, and its Gram matrix a multiple of the identity: their mean eigenvalue. That is one O(n) orbit as well.

    Factors of single coordinates (`Scale`) and of planes (`Rotary`) are balanced in the same way, one number each.

    Args:
        state: parameters by name; not modified.
        blueprint: of the model.

    Returns:
        The alignment to apply. A copy of a space of which nothing is both written and read (a dead head) keeps its
        basis, since it has no balanced form.
    """
    spaces = [s for s in blueprint.spaces.values() if _has_balance(s)]
    # Coupled spaces (two of them on one parameter) are balanced in turn: each step shortens the parameters, whose
    # length is geodesically convex on the group, so that the steps end where all are balanced. One that is coupled
    # with none is balanced by the first step; the second takes away what rounding left of badly conditioned ones.
    current = {name: state[name].detach().double() for name in blueprint.touching(space.name for space in spaces)}
    alignment = Alignment.identity(blueprint)
    for _ in range(SWEEPS):
        moved = 0.0
        for space in spaces:
            element = _element(current, blueprint, space)
            moved = max(moved, float((element - space.group.identity(space.copies).to(element)).abs().max()))
            step = Alignment(blueprint, {space.name: element})
            current |= {name: step.apply_to(name, current[name]) for name in blueprint.touching([space.name])}
            alignment = step.compose(alignment)
        if moved < 1e-10:
            break
    return alignment


def _has_balance(space: Space) -> bool:
    return isinstance(space.group, Invertible | Rotary | Scale) and not isinstance(space.group, Orthogonal)


def _element(state: Mapping[str, Tensor], blueprint: Blueprint, space: Space) -> Tensor:
    """What balances one space, the others held fixed."""
    group = space.group
    primal, dual = _grams(state, blueprint, space)
    identity = group.identity(space.copies).to(primal.device)
    if isinstance(group, Invertible):
        return _balancing(primal, dual, identity)
    lengths = [gram.diagonal(dim1=-2, dim2=-1) for gram in (primal, dual)]
    if isinstance(group, Rotary):
        lengths = [torch.stack(group.planes(x.unsqueeze(-1))).sum((0, -1)) for x in lengths]
    usable = (lengths[0] > 0) & (lengths[1] > 0)
    factor = torch.where(usable, lengths[1] / lengths[0], 1.0).pow(0.25)
    return identity * (factor.unsqueeze(-1) if isinstance(group, Rotary) else factor)


def _grams(state: Mapping[str, Tensor], blueprint: Blueprint, space: Space) -> tuple[Tensor, Tensor]:
    """Gram matrices of a space's primal and dual stretches, each ``(*copies, n, n)`` in float64."""
    size = space.group.size
    sums: dict[bool, Tensor] = {}
    for name, axes in blueprint.touching([space.name]).items():
        for dim, axis in enumerate(axes):
            if space.name not in spaces_of(axis):
                continue
            for leaf in leaves(axis, state[name].detach(), dim):
                if leaf.space == space.name:
                    shared = [d for d, outer in enumerate(leaf.path) if outer not in space.index]
                    rows = leaf.view.double()
                    gram = rows @ rows.mT
                    gram = gram.sum(shared) if shared else gram
                    sums[leaf.is_dual] = sums[leaf.is_dual] + gram if leaf.is_dual in sums else gram
    empty = torch.zeros(*space.copies, size, size, dtype=torch.float64)
    return sums.get(False, empty), sums.get(True, empty)


def _balancing(primal: Tensor, dual: Tensor, identity: Tensor) -> Tensor:
    """The positive G with G P G^T = G^-T D G^-1, for each copy."""
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
    """The positive G that balances what two Gram matrices have in common, and settles the rest; see `balance`.

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
    _, stretch, directions = torch.linalg.svd(transform @ basis.mT)
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
