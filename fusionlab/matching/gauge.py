"""The balanced gauge: a canonical form of what lies inside heads, reached without changing the function.

Balancing is itself an alignment (an element of every GL space), so it is exact, invertible and composes with the
alignment that matching finds.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from fusionlab.matching.groups import geometry
from fusionlab.symmetry import Alignment, Blueprint, Space
from fusionlab.symmetry.axes import spaces_of
from fusionlab.symmetry.leaves import leaves
from fusionlab.symmetry.roles import Role

# The most passes over all spaces; where they are coupled some twenty usually reach float64's precision.
SWEEPS = 100


def balance(state: Mapping[str, Tensor], blueprint: Blueprint) -> Alignment:
    """Balance every space whose group changes lengths: then its writers and its readers have the same Gram matrix.

    For query Q and key K of a head (biases included) that is Q Q^T = K K^T, the form that the balanced factors
    ``S^1/2 U^T`` and ``S^1/2 V^T`` of Q^T K = U S V^T have; all balanced factorisations of one product differ by an
    orthogonal matrix only, which Procrustes then finds.

    Each group has a closed form of its own, from the Gram matrices of both sides of a space
    (`fusionlab.matching.groups.geometry.Geometry.balance`): factors of coordinates and of planes are one number each,
    matrices are in `fusionlab.matching.balancing`, singular Gram matrices included. Factors of a residual stream's
    coordinates make gains one instead (with the bias beside them one long), as folding does and as they are near when
    a model is made.

    Args:
        state: parameters by name; not modified.
        blueprint: of the model.

    Returns:
        The alignment to apply. A copy of a space of which nothing is both written and read (a dead head) keeps its
        basis, since it has no balanced form.
    """
    spaces = [space for space in blueprint.spaces.values() if geometry(space.group).has_balance]
    # Coupled spaces (two of them on one parameter) are balanced in turn: each step shortens the parameters, whose
    # length is geodesically convex on the group, so that the steps end where all are balanced. One that is coupled
    # with none is balanced by the first step; the second takes away what rounding left of badly conditioned ones.
    state = blueprint.stacked(state)
    current = {name: state[name].detach().double() for name in blueprint.touching(space.name for space in spaces)}
    alignment = Alignment.identity(blueprint)
    for _ in range(SWEEPS):
        moved = 0.0
        for space in spaces:
            element = unit_gains(current, blueprint, space) if space.role == Role.RESIDUAL_SCALE else None
            if element is None:
                element = geometry(space.group).balance(*grams(current, blueprint, space))
            moved = max(moved, float((element - space.group.identity(space.copies).to(element)).abs().max()))
            step = Alignment(blueprint, {space.name: element})
            current |= {name: step.apply_to(name, current[name]) for name in blueprint.touching([space.name])}
            alignment = step.compose(alignment)
        if moved < 1e-10:
            break
    return alignment


def unit_gains(state: Mapping[str, Tensor], blueprint: Blueprint, space: Space) -> Tensor | None:
    """The factors that make the vectors on one side of a space one long; None where there is no side of vectors alone.

    Returns:
        Shape ``(*copies, 1)``, positive; 1 where the vectors are zero.
    """
    names = list(blueprint.touching([space.name]))
    vectors = {name for name in names if sum(size > 1 for size in state[name].shape) < 2}
    of_maps, of_vectors = (
        grams({name: state[name] for name in some}, blueprint, space) for some in (set(names) - vectors, vectors)
    )
    alone = [side for side in range(2) if bool(of_vectors[side].any()) and not bool(of_maps[side].any())]
    if len(alone) != 1:
        return None
    squares = of_vectors[alone[0]][..., 0]
    return torch.where(squares > 0, squares, 1.0).pow(-0.5 if alone == [0] else 0.5)


def grams(state: Mapping[str, Tensor], blueprint: Blueprint, space: Space) -> tuple[Tensor, Tensor]:
    """Gram matrices of a space's primal and dual stretches, each ``(*copies, n, n)`` in float64.

    Args:
        state: parameters by name; what is left out does not count.
        blueprint: of the model.
        space: one of its spaces.
    """
    size = space.group.size
    sums: dict[bool, Tensor] = {}
    for name, axes in blueprint.touching([space.name]).items():
        if name not in state:
            continue
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
    device = next((gram.device for gram in sums.values()), None)
    empty = torch.zeros(*space.copies, size, size, dtype=torch.float64, device=device)
    return sums.get(False, empty), sums.get(True, empty)
