"""What a run leaves in a model's modules says nothing of other weights, and stops no copy."""

import copy

import pytest
import timm
import torch
from torch import nn

import fusionlab
from fusionlab.forward import forward, logits
from fusionlab.symmetry.leftovers import KEPT_BIASES, forget
from fusionlab.types import Batch
from tests.symmetry.infer.cases import BY_NAME
from tests.symmetry.models import generator, randomize

LEVIT, RECURRENT_GEMMA = BY_NAME["levit"], BY_NAME["recurrent_gemma"]


def levits() -> tuple[list[nn.Module], Batch]:
    """Two models in eval mode that have run outside of fusionlab, and inputs."""
    models = [randomize(LEVIT.build(), seed).eval() for seed in (0, 1)]
    inputs = {name: values.double() for name, values in LEVIT.inputs(generator(3)).items()}
    with torch.no_grad():
        for model in models:
            model(**inputs)
    return models, inputs


@torch.no_grad()
def test_a_merge_and_a_twin_of_models_that_have_run_compute_by_their_own_weights() -> None:
    models, inputs = levits()
    assert any(vars(module).get(KEPT_BIASES) for module in models[0].modules()), "the class keeps them no more"
    made = [fusionlab.merge(models, "simple"), fusionlab.align(models, anchor=0, preset="weights")[1]]
    for model in made:
        fresh = LEVIT.build().double().eval()
        fresh.load_state_dict(model.state_dict())
        torch.testing.assert_close(model(**inputs).logits, fresh(**inputs).logits)


@torch.no_grad()
def test_every_point_of_a_line_is_measured_by_its_own_weights() -> None:
    models, inputs = levits()
    batch = {**inputs, "labels": torch.zeros(len(inputs["pixel_values"]), dtype=torch.long)}
    line = fusionlab.barrier(*models, [batch], 3)
    losses = [
        float(nn.functional.cross_entropy(model(**inputs).logits, batch["labels"]))
        for model in (models[0], fusionlab.merge(models, "simple"), models[1])
    ]
    assert line.loss == pytest.approx(losses, rel=1e-4)


def test_models_of_timm_are_asked_anew() -> None:
    model = timm.create_model("tiny_vit_5m_224", num_classes=3).eval()
    images = {"pixel_values": torch.randn(1, 3, 224, 224, generator=generator(0))}
    with torch.no_grad():
        before = logits(model, images)
        for name, parameter in model.named_parameters():
            if name.endswith("attention_biases"):
                parameter.add_(torch.randn(parameter.shape, generator=generator(1)))
        assert float((logits(model, images) - before).abs().max()) > 1e-4


def test_a_model_whose_states_have_gradients_can_be_copied() -> None:
    model = randomize(RECURRENT_GEMMA.build(), 0).eval()
    inputs = RECURRENT_GEMMA.inputs(generator(0))
    model(**inputs)
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(model)
    forget(model)
    copy.deepcopy(model)
    logits(model, inputs).sum().backward()
    twin = copy.deepcopy(model)
    with torch.no_grad():
        torch.testing.assert_close(forward(twin, inputs).logits, forward(model, inputs).logits)
