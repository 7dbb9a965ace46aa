"""Polish by weights: a model teaches as much as it weighs."""

import pytest
import torch

from fusionlab.errors import InputError
from fusionlab.forward import logits
from fusionlab.learning.distillation import teacher_targets
from fusionlab.polish import PolishOptions, polish
from tests.api.models import distance
from tests.commands.small import vit
from tests.test_polish import images


def test_weights_say_how_much_each_model_teaches() -> None:
    models, batch = [vit(0), vit(1)], images()
    targets = teacher_targets(models, batch, weights=[0.25, 0.75])
    expected = 0.25 * logits(models[0], batch).softmax(-1) + 0.75 * logits(models[1], batch).softmax(-1)
    assert torch.allclose(targets.values, expected)
    alone = teacher_targets(models, batch, own=0, weights=[0, 1])
    assert torch.allclose(alone.values, logits(models[0], batch).softmax(-1))


@pytest.mark.parametrize("is_own", [False, True])
def test_a_model_of_weight_zero_teaches_nothing(is_own: bool) -> None:
    """A polish is that towards the other model alone, on shared inputs and on inputs of each."""
    models, batches = [vit(0), vit(1)], [images(16, 0)]
    data = [batches, [images(16, 1)]] if is_own else batches
    how = PolishOptions(steps=3, batch_size=8, mixtures=0, synthetic=0)
    found = polish(vit(2), models, data, how, weights=[2, 0])
    other = polish(vit(2), models, data, how)
    if is_own:
        expected = polish(vit(2), [models[0], vit(3)], [batches, [images(16, 2)]], how, weights=[1, 0])
    else:
        expected = polish(vit(2), models[:1], batches, how)
    assert distance(found, expected) < 0.05 * distance(found, other)
    with pytest.raises(InputError, match="weights has 1 numbers for 2 models"):
        polish(vit(2), models, data, how, weights=[1])
