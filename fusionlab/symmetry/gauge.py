"""The balanced gauge: a canonical form of what lies inside heads, reached without changing the function.

Balancing is itself an alignment (an element of every GL space), so it is exact, invertible and composes with the
alignment that matching finds.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fusionlab.symmetry.alignment import Alignment
from fusionlab.symmetry.axes import leaves, spaces_of
from fusionlab.symmetry.blueprint import Blueprint, Space
from fusionlab.symmetry.groups import Invertible, Orthogonal, Rotary, Scale

# The most passes over coupled spaces; some twenty usually reach float64's precision.
SWEEPS = 100


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

    Factors of single coordinates (`Scale`) and of planes (`Rotary`) are balanced in the same way, one number each.

    Returns:
        The alignment to apply. A copy of a space whose Gram matrices are singular (a dead head, a head wider than the
        model) keeps its basis, since it has no balanced form.
    """
    spaces = [s for s in blueprint.spaces.values() if _has_balance(s)]
    if not _are_coupled(spaces, blueprint):
        return Alignment(blueprint, {space.name: _element(state, blueprint, space) for space in spaces})
    # Coupled spaces (two of them on one parameter) are balanced in turn: each step shortens the parameters, whose
    # length is geodesically convex on the group, so that the steps end where all are balanced.
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


def _are_coupled(spaces: Sequence[Space], blueprint: Blueprint) -> bool:
    names = {space.name for space in spaces}
    return any(
        not names.isdisjoint(spaces_of(axis)) and not names.isdisjoint(spaces_of(other))
        for axes in blueprint.touching(names).values()
        for dim, axis in enumerate(axes)
        for other in axes[:dim]
    )


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
