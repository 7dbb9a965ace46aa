"""Statistics of experts that are modules of their own follow a model to its twin."""

import pytest
import torch

from fusionlab.statistics import Grams
from fusionlab.statistics.gather import gather
from fusionlab.statistics.transport import move
from fusionlab.symmetry import Alignment
from fusionlab.symmetry.infer.blueprint import infer
from tests.symmetry.infer import expert_lists as nets


@pytest.mark.parametrize("mixture", [nets.Dense, nets.Chosen])
def test_grams_of_experts_change_places_with_them(mixture: type[nets.Dense]) -> None:
    """Also the numbers of rows, which are as many as tokens that a router chose an expert for."""
    torch.manual_seed(0)
    model = nets.Net(mixture()).double().eval()
    with torch.no_grad():
        # So that every expert is chosen by some tokens.
        model.mixtures[0].router.weight.mul_(20)
        model.mixtures[0].router.bias.zero_()
    found = infer(model, nets.example(), "mixture")
    alignment = Alignment.random(found, torch.Generator().manual_seed(1))
    twin = alignment.apply(model)
    batches = [
        {"x": torch.randn(60, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(i))} for i in range(3)
    ]
    before, after = (gather(one, batches, [Grams.kind])[Grams.kind] for one in (model, twin))
    assert isinstance(before, Grams)
    assert isinstance(after, Grams)
    moved = move(before, alignment, twin.state_dict(), model.state_dict())
    assert moved.maps.keys() == after.maps.keys()
    for weight in after.maps:
        torch.testing.assert_close(moved.mean(weight), after.mean(weight), rtol=1e-6, atol=1e-6)
