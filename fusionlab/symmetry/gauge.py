"""Gauges: canonical forms that a model can be brought into without changing its function.

Balancing is itself an alignment (an element of every GL space), so it is exact, invertible and composes with the
alignment that matching finds.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from fusionlab.symmetry.alignment import Alignment
from fusionlab.symmetry.axes import leaves, spaces_of
from fusionlab.symmetry.blueprint import Blueprint, Space
from fusionlab.symmetry.groups import Invertible, Orthogonal


def balance(state: Mapping[str, Tensor], blueprint: Blueprint) -> Alignment:
    """Balance every invertible space: afterwards its writers and its readers have the same Gram matrix.

    For query Q and key K of a head (biases included) that is Q Q^T = K K^T, the form that the balanced factors
    ``S^1/2 U^T`` and ``S^1/2 V^T`` of Q^T K = U S V^T have; all balanced factorisations of one product differ by an
    orthogonal matrix only, which Procrustes then finds.

    With P and D the Gram matrices of the primal and the dual side, G P G^T = G^-T D G^-1 says that M = G^T G solves
    M P M = D. Its positive solution is the geometric mean of P^-1 and D, and G is M's positive square root (Bhatia,
    "Positive Definite Matrices", 2007, section 4.1).

    Args:
        state: parameters by name; not modified.
        blueprint: of the model.

    Returns:
        The alignment to apply. A copy of a space whose Gram matrices are singular (a dead head, a head wider than the
        model) keeps its basis, since it has no balanced form.
    """
    elements = {}
    for space in blueprint.spaces.values():
        if isinstance(space.group, Invertible) and not isinstance(space.group, Orthogonal):
            primal, dual = _grams(state, blueprint, space)
            elements[space.name] = _balancing(primal, dual, space.group.identity(space.copies).to(primal))
    return Alignment(blueprint, elements)


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
    regular = (_condition(primal) < 1e12) & (_condition(dual) < 1e12)
    safe = [torch.where(regular[..., None, None], gram, identity) for gram in (primal, dual)]
    root, inverse_root = _power(safe[0], 0.5), _power(safe[0], -0.5)
    squared = inverse_root @ _power(root @ safe[1] @ root, 0.5) @ inverse_root
    return torch.where(regular[..., None, None], _power(squared, 0.5), identity)


def _condition(gram: Tensor) -> Tensor:
    eigenvalues = torch.linalg.eigvalsh(gram)
    return torch.where(eigenvalues[..., 0] > 0, eigenvalues[..., -1] / eigenvalues[..., 0], torch.inf)


def _power(matrix: Tensor, exponent: float) -> Tensor:
    """A real power of a symmetric positive definite matrix."""
    values, vectors = torch.linalg.eigh((matrix + matrix.mT) / 2)
    return vectors * values.clamp_min(torch.finfo(values.dtype).tiny).pow(exponent).unsqueeze(-2) @ vectors.mT
