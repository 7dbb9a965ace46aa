"""The ensemble of several models is called like one of them."""

import pytest
import torch
from torch import nn

from fusionlab.errors import InputError
from fusionlab.evaluation.ensemble import Ensemble
from fusionlab.evaluation.scores import Scores
from fusionlab.forward import logits
from fusionlab.merging import methods
from fusionlab.symmetry import blueprint
from tests.symmetry.models import generator, random_model

NAMES = ["vit-classifier", "bert-sequence", "bert-token", "timm-plain"]


def batch_for(model: nn.Module) -> dict[str, torch.Tensor]:
    return {i.name: i.random(4, generator(1)) for i in blueprint(model).inputs}


@pytest.mark.parametrize("name", NAMES)
def test_mean_of_logits(name: str) -> None:
    """By weight, for transformers and timm models, for sequences and tokens."""
    models = [random_model(name, seed) for seed in range(3)]
    batch = batch_for(models[0])
    expected = sum(w * logits(m, batch) for w, m in zip((0.2, 0.3, 0.5), models, strict=True))
    torch.testing.assert_close(logits(Ensemble(models, [2, 3, 5]), batch), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_of_equal_models_is_the_model(name: str) -> None:
    """Whatever the weights."""
    model = random_model(name)
    found = logits(Ensemble([model, model], [1, 7]), batch_for(model))
    torch.testing.assert_close(found, logits(model, batch_for(model)), rtol=0, atol=1e-12)


def test_is_scored_like_a_model() -> None:
    """Loss and accuracy come from the mean logits; labels in the batch are no input."""
    models = [random_model("vit-classifier", seed) for seed in range(2)]
    batch = batch_for(models[0])
    labels = torch.tensor([0, 1, 2, 4])
    scores = Scores()
    scores.update(Ensemble(models), batch | {"labels": labels})
    mean = (logits(models[0], batch) + logits(models[1], batch)) / 2
    expected = nn.functional.cross_entropy(mean.float(), labels)
    assert scores.compute()["loss"] == pytest.approx(float(expected.detach()), rel=1e-6)


def test_models_of_different_precision() -> None:
    """Each runs in its own type, the mean is taken in float32."""
    models = [random_model("vit-classifier").to(dtype) for dtype in (torch.bfloat16, torch.float32)]
    found = logits(Ensemble(models), batch_for(models[0]))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, logits(models[1], batch_for(models[0])), rtol=0.1, atol=0.1)


def test_is_no_merge_method() -> None:
    """It has no state to save."""
    assert "ensemble" not in methods()


def test_bad_input() -> None:
    """At least one model, one weight for each."""
    with pytest.raises(InputError, match="given no models"):
        Ensemble([])
    with pytest.raises(InputError, match="1 numbers for 2 models"):
        Ensemble([nn.Identity(), nn.Identity()], [1.0])
