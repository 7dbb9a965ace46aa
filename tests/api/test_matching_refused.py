"""Models and options that matching in Python refuses, each in one sentence and before any work."""

from typing import Any

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

import fusionlab
from fusionlab.errors import InputError
from fusionlab.matching import align_models
from tests.api.models import batches
from tests.commands.small import bert, random_logits, vit


@pytest.mark.parametrize("preset", ["paper", "git-rebasin", "weights", "activations"])
def test_numbers_that_are_none(preset: str) -> None:
    """The model and the parameter are named."""
    broken = vit(1)
    with torch.no_grad():
        broken.classifier.weight[2, 3] = torch.nan
    sentence = r"model 1 of align: parameter classifier.weight holds 1 value of \d+ that are NaN or infinite"
    with pytest.raises(InputError, match=sentence):
        fusionlab.align([vit(0), broken], preset=preset)
    with pytest.raises(InputError, match=r"source: parameter classifier.weight"):
        fusionlab.match(broken, vit(0))


@pytest.mark.parametrize("preset", ["paper", "git-rebasin", "weights"])
def test_a_model_of_zeros_is_matched(preset: str) -> None:
    """Nothing tells its spaces apart, so any element does; it still returns zeros."""
    nothing = vit(1)
    with torch.no_grad():
        for parameter in nothing.parameters():
            parameter.zero_()
    twin, _ = fusionlab.align([nothing, vit(0)], anchor=1, preset=preset)
    assert all(parameter.isfinite().all() for parameter in twin.parameters())
    assert not random_logits(twin).any()


def test_quantised_models() -> None:
    quantised = torch.ao.quantization.quantize_dynamic(bert(0), {nn.Linear})
    with pytest.raises(InputError, match=r"model 0 of align holds .* which is no tensor, as in quantised models"):
        fusionlab.align([quantised, quantised])


def test_rescale_beside_activations() -> None:
    with pytest.raises(InputError, match="rescale is 'joint', and activations are matched without; expected no"):
        fusionlab.match(vit(0), vit(1), data=batches(), rescale="joint")


def test_nothing_to_learn_is_told_before_inputs_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusionlab.inputs.Inputs, "synthetic", lambda *_, **__: pytest.fail("drew inputs"))
    models = [GPT2LMHeadModel(GPT2Config(vocab_size=11, n_positions=8, n_embd=8, n_layer=1, n_head=2)) for _ in "ab"]
    with pytest.raises(InputError, match="spaces holds nothing that gradients can move"):
        fusionlab.align(models, preset="learned", spaces="ffn")


def test_labels_that_the_data_lack_are_asked_for_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(align_models, "in_one_basis", lambda *_: pytest.fail("matched"))
    unlabelled = [{"pixel_values": batch["pixel_values"]} for batch in batches()]
    for data in (None, unlabelled, [batches(), unlabelled]):
        with pytest.raises(InputError, match="target is 'labels', but the data holds none"):
            fusionlab.align([vit(0), vit(1)], preset="learned", data=data, target="labels")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"sweeps": 1.5}, "sweeps is 1.5; expected a whole number"),
        ({"relative": "0.5"}, "relative is '0.5'; expected a number"),
        ({"temperatures": True}, "temperatures is True; expected a whole number"),
        ({"preset": "learned", "steps": "3"}, "steps is '3'; expected a whole number"),
        ({"preset": "learned", "edges": "half"}, "edges is 'half'; expected a number"),
        ({"anchor": "\u00b2"}, "anchor is .*; expected 'nearest' or an index from 0 to 1"),
    ],
)
def test_options_of_another_type(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        fusionlab.align([vit(0), vit(1)], **{"preset": "weights", **options})


def test_gauges_may_be_text() -> None:
    """As everywhere else."""
    found, same = (fusionlab.canonical(vit(0), gauges) for gauges in ("folded,balanced", ("folded", "balanced")))
    torch.testing.assert_close(found.state_dict(), same.state_dict())
    with pytest.raises(InputError, match="gauge 'flat' does not exist; expected some of folded"):
        fusionlab.canonical(vit(0), "flat")


def test_modules_that_differ_are_named() -> None:
    """Two BERTs of one config, one with another activation."""
    other = bert(1)
    for layer in other.bert.encoder.layer:
        layer.intermediate.intermediate_act_fn = nn.ReLU()
    with pytest.raises(InputError, match="intermediate_act_fn is a GELUActivation in one and a ReLU in the other"):
        fusionlab.align([bert(0), other])
