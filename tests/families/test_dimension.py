"""The printed dimension of a symmetry is the rank of its action's Jacobian at the identity."""

import pytest
import torch
from torch import Tensor

from fusionlab.symmetry import Alignment, Blueprint, Space, blueprint
from fusionlab.symmetry.folding import fold
from fusionlab.symmetry.groups import Invertible, Orthogonal, OrthogonalFixingOnes, complement_of_ones
from tests.families.cases_bert import CASES as BERT
from tests.families.cases_vit import CASES as VIT
from tests.families.harness import Case, random_model


def directions(space: Space) -> list[Tensor]:
    """A basis of a space's Lie algebra: one perturbation of the identity element for each of its dimensions."""
    group, identity = space.group, space.group.identity(space.copies)
    if not identity.is_floating_point():
        return []
    if not isinstance(group, Orthogonal):
        return [unit.reshape(identity.shape) for unit in torch.eye(identity.numel(), dtype=torch.float64)]
    keeps_ones = isinstance(group, OrthogonalFixingOnes)
    basis = complement_of_ones(group.size) if keeps_ones else torch.eye(group.size, dtype=torch.float64)
    pairs = [(basis[:, i], basis[:, j]) for i in range(basis.shape[1]) for j in range(i)]
    return [torch.outer(u, v) - torch.outer(v, u) for u, v in pairs]


def jacobian_rank(state: dict[str, Tensor], description: Blueprint) -> int:
    """Rank of the derivative of ``g -> g * parameters`` at the identity, by central differences (exact to 1e-9)."""
    step, columns = 1e-4, []
    for name, space in description.spaces.items():
        for direction in directions(space):
            moved = []
            for sign in (1, -1):
                element = space.group.identity(space.copies) + sign * step * direction
                twin = Alignment(description, {name: element})
                moved.append(torch.cat([twin.apply_to(n, t).flatten() for n, t in state.items()]))
            columns.append((moved[0] - moved[1]) / (2 * step))
    return int(torch.linalg.matrix_rank(torch.stack(columns, 1), rtol=1e-6))


@pytest.mark.parametrize("case", [VIT[0], BERT[2]], ids=lambda case: case.name)
def test_the_printed_dimension_is_the_rank_of_the_jacobian(case: Case) -> None:
    model = random_model(case)
    description = blueprint(model, folded=True)
    assert any(isinstance(space.group, Invertible) for space in description.spaces.values())
    state = fold(model.state_dict(), description) if description.folded else model.state_dict()
    assert jacobian_rank(state, description) == description.dimension > 0
