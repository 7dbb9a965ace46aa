"""The balanced gauge: a canonical form of what lies inside heads, reached without changing the function.

Balancing is itself an alignment (an element of every GL space), so it is exact, invertible and composes with the
alignment that matching finds.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from fusionlab.matching.balancing import balancing_power
from fusionlab.matching.groups import geometry
from fusionlab.symmetry import Alignment, Blueprint, Space
from fusionlab.symmetry.axes import spaces_of
from fusionlab.symmetry.leaves import leaves
from fusionlab.symmetry.roles import Role

# The most passes over all spaces; where they are coupled some twenty usually reach float64's precision.
SWEEPS = 100
# An element as near to the identity as rounding is left out.
_STILL = 1e-14


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
                element = _balancing(current, blueprint, space)
            change = float((element - space.group.identity(space.copies).to(element)).abs().max())
            moved = max(moved, change)
            if change < _STILL:
                continue
            step = Alignment(blueprint, {space.name: element})
            current |= {name: step.apply_to(name, current[name]) for name in blueprint.touching([space.name])}
            alignment = step.compose(alignment)
        if moved < 1e-10:
            break
    return alignment


def _balancing(state: Mapping[str, Tensor], blueprint: Blueprint, space: Space) -> Tensor:
    """The element that balances one space with all others as they are."""
    if not space.group.is_factor:
        return geometry(space.group).balance(*grams(state, blueprint, space))
    return balancing_power(squares(state, blueprint, space)).unsqueeze(-1)


def unit_gains(state: Mapping[str, Tensor], blueprint: Blueprint, space: Space) -> Tensor | None:
    """The factors that make the vectors on one side of a space one long; None where there is no side of vectors alone.

    Returns:
        Shape ``(*copies, 1)``, positive; 1 where the vectors are zero.
    """
    names = list(blueprint.touching([space.name]))
    vectors = {name for name in names if sum(size > 1 for size in state[name].shape) < 2}
    of_maps, of_vectors = (
        {
            power: square
            for power, square in squares({name: state[name] for name in some}, blueprint, space).items()
            if bool(square.any())
        }
        for some in (set(names) - vectors, vectors)
    )
    sides = {power > 0 for power in of_maps}
    alone = [power for power in of_vectors if (power > 0) not in sides]
    if len(alone) != 1:
        return None
    square = of_vectors[alone[0]]
    return torch.where(square > 0, square, 1.0).pow(-0.5 / alone[0]).unsqueeze(-1)


def squares(state: Mapping[str, Tensor], blueprint: Blueprint, space: Space) -> dict[int, Tensor]:
    """The squared lengths of what a factor acts on, by the power of it, each of shape ``(*copies)`` in float64.

    Args:
        state: parameters by name; what is left out does not count.
        blueprint: of the model.
        space: a factor.
    """
    sums: dict[int, Tensor] = {}
    for name, axes in blueprint.touching([space.name]).items():
        for dim, axis in enumerate(axes if name in state else ()):
            if space.name not in spaces_of(axis):
                continue
            for leaf in leaves(axis, state[name].detach(), dim):
                if (along := leaf.along(space.name)) is not None:
                    square = along.by_copies(space.index).double().square().flatten(len(space.index)).sum(-1)
                    sums[along.power] = sums[along.power] + square if along.power in sums else square
    return sums


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
                    # Factors around it are none of its own; they are balanced by themselves.
                    shared = [d for d, outer in enumerate(leaf.path) if outer not in space.index]
                    rows = leaf.view.double()
                    gram = rows @ rows.mT
                    gram = gram.sum(shared) if shared else gram
                    sums[leaf.is_dual] = sums[leaf.is_dual] + gram if leaf.is_dual in sums else gram
    device = next((gram.device for gram in sums.values()), None)
    empty = torch.zeros(*space.copies, size, size, dtype=torch.float64, device=device)
    return sums.get(False, empty), sums.get(True, empty)
