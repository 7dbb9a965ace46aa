"""Models are in eval mode for a while and come back part by part."""

import pytest
from torch import nn

from fusionlab.modes import in_eval_mode


def test_every_part_comes_back_in_its_own_mode() -> None:
    """Also after an error, and where one part is eval alone or belongs to two models."""
    shared = nn.Dropout()
    first, second = nn.Sequential(nn.Linear(2, 2), shared), nn.Sequential(shared, nn.Linear(2, 2)).eval()
    first.train()
    first[0].eval()
    before = [module.training for model in (first, second) for module in model.modules()]
    assert {*before} == {True, False}
    with in_eval_mode(first, second):
        assert not any(module.training for model in (first, second) for module in model.modules())
    assert [module.training for model in (first, second) for module in model.modules()] == before
    with pytest.raises(KeyError), in_eval_mode(first, second):
        raise KeyError
    assert [module.training for model in (first, second) for module in model.modules()] == before
