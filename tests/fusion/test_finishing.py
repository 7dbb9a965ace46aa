"""Corrections and polish of the merge that is kept follow the weights of the models in it."""

import pytest
import torch

from fusionlab.errors import InputError
from fusionlab.forward import logits
from fusionlab.fusion import Fuser, FusionPlan
from fusionlab.inputs import Inputs
from fusionlab.polish import PolishOptions, polish
from fusionlab.search import Settings
from fusionlab.stages import run
from tests.api.models import distance
from tests.commands.small import vit


def test_a_correction_is_towards_what_is_in_the_merge() -> None:
    """At one end of the arc a merge is that model, and its activations have that model's mean and spread."""
    models, batches = {"a": vit(0), "b": vit(1)}, [{"pixel_values": torch.randn(64, 1, 8, 8)}]
    plan = FusionPlan(methods={"slerp": {"t": 0.0}}, correct=True)
    fused = run(Fuser(models, plan, Inputs.from_batches(batches, 2)).fuse())
    assert fused.kept is not None
    assert fused.kept.method == "slerp, corrected"
    found, wanted = logits(fused.kept.model, batches[0]), logits(models["a"], batches[0])
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_a_correction_takes_one_weight_of_each_model() -> None:
    values = {"layer_weights": {"*": [1, 2]}}
    with pytest.raises(InputError, match="layer_weights differs from parameter to parameter, and a correction"):
        Fuser({"a": vit(0), "b": vit(1)}, FusionPlan(methods={"simple": values}, correct=True))
    Fuser({"a": vit(0), "b": vit(1)}, FusionPlan(methods={"simple": values}))


def test_a_polish_is_by_the_weights_of_the_models() -> None:
    """A model of weight 0 is neither merged nor learned from."""
    models, batches = {"a": vit(0), "b": vit(1)}, [{"pixel_values": torch.randn(64, 1, 8, 8)}]
    how = PolishOptions(steps=2, mixtures=0, synthetic=0)
    inputs = Inputs.from_batches(batches, 2)
    fused = run(Fuser(models, FusionPlan(weights=[1, 0], polish=how), inputs).fuse())
    assert fused.kept is not None
    expected = polish(vit(0), [vit(0)], batches, how)
    mean = polish(vit(0), list(models.values()), batches, how)
    assert distance(fused.kept.model, expected) < 0.05 * distance(fused.kept.model, mean)


def test_a_polish_is_by_the_position_between_two_models() -> None:
    """At one end of the arc the other model teaches nothing."""
    models, batches = {"a": vit(0), "b": vit(1)}, [{"pixel_values": torch.randn(64, 1, 8, 8)}]
    how = PolishOptions(steps=2, mixtures=0, synthetic=0)
    plan = FusionPlan(methods={"slerp": {"t": 0.0}}, polish=how)
    fused = run(Fuser(models, plan, Inputs.from_batches(batches, 2)).fuse())
    assert fused.kept is not None
    expected = polish(vit(0), [vit(0)], batches, how)
    mean = polish(vit(0), list(models.values()), batches, how)
    assert distance(fused.kept.model, expected) < 0.05 * distance(fused.kept.model, mean)


def test_shares_follow_the_position_between_two_models() -> None:
    assert Settings({}, [0.9, 0.1]).shares() == [0.9, 0.1]
    assert Settings({"t": 0.25}, [0.5, 0.5]).shares() == [0.75, 0.25]
    assert Settings({"t": {"*": 0.25}}, [0.5, 0.5]).usual_shares == [0.5, 0.5]
    with pytest.raises(InputError, match="t differs from parameter to parameter"):
        Settings({"t": {"*": 0.25}}, [0.5, 0.5]).shares()
