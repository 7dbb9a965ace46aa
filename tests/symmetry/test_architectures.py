"""Every architecture's blueprint is exact on the real model class, complete, and has nothing to spare."""

import re
from dataclasses import replace

import pytest
import torch
from torch import nn

from fusionlab.symmetry import Alignment, SymmetryError, blueprint
from fusionlab.symmetry.architectures import DESCRIBED
from fusionlab.symmetry.axes import Along, Axis, Concat, Fixed, Per
from fusionlab.symmetry.infer import models
from tests.symmetry.wrong_axes import wrong_axes

from .models import CASES, moving, moving_all, outputs, random_model, relative

every_model = pytest.mark.parametrize("name", CASES)


@every_model
def test_random_alignment_keeps_the_function(name):
    """The whole symmetry at once: other parameters, same outputs to 1e-9."""
    model = random_model(name)
    expected = outputs(model)
    twin = moving_all(blueprint(model)).apply(model)
    assert relative(outputs(twin), expected) < 1e-9
    before = model.state_dict()
    assert all(not torch.equal(after, before[key]) for key, after in twin.state_dict().items() if _touched(model, key))


@every_model
def test_each_space_alone_keeps_the_function(name):
    model = random_model(name)
    description = blueprint(model)
    expected = outputs(model)
    for space in description.spaces:
        twin = Alignment(description, {space: moving(description, space, 1)}).apply(model)
        assert relative(outputs(twin), expected) < 1e-9, space


@pytest.mark.parametrize("name", ["bert-model", "roberta-sequence", "vit-without-qkv-bias", "timm-distilled"])
@torch.no_grad()
def test_every_axis_is_needed(name):
    """Leave out, or turn from primal to dual, any one stretch of any one axis: the function changes.

    Of all classes it is shown by a derivative of the outputs, see `tests.families.needed_axes`.
    """
    model = random_model(name)
    description = blueprint(model)
    expected = outputs(model)
    alignment = moving_all(description)
    twin = alignment.apply(model)
    original, right = model.state_dict(), dict(twin.named_parameters())
    checked = 0
    for parameter, axes in description.parameters.items():
        if parameter in CASES[name].free:
            continue
        kept = right[parameter].clone()
        for dim, axis in enumerate(axes):
            for wrong, _ in wrong_axes(axis, description.spaces):
                if parameter.endswith("qkv.bias") and _spares_all_but_keys(axis, wrong):
                    continue
                spoilt = (*axes[:dim], wrong, *axes[dim + 1 :])
                corrupt = replace(description, parameters={**description.parameters, parameter: spoilt})
                right[parameter].copy_(Alignment(corrupt, alignment.elements).apply_to(parameter, original[parameter]))
                assert relative(outputs(twin), expected) > 1e-6, (parameter, dim, wrong)
                checked += 1
        right[parameter].copy_(kept)
    assert relative(outputs(twin), expected) < 1e-9
    assert checked >= 30


@every_model
def test_acting_on_queries_but_not_on_keys_changes_the_function(name):
    """The check above can fail: a blueprint that forgets the keys is caught."""
    model = random_model(name)
    description = blueprint(model)
    space = "layers.0.qk"
    forgetful = {
        parameter: tuple(_without_dual(axis, space) for axis in axes)
        for parameter, axes in description.parameters.items()
    }
    twin = Alignment(replace(description, parameters=forgetful), {space: moving(description, space, 0)}).apply(model)
    assert relative(outputs(twin), outputs(model)) > 1e-3


@every_model
def test_coverage_is_as_listed(name):
    """The parameters that no space touches are among these."""
    assert set(blueprint(random_model(name)).untouched()) <= set(CASES[name].untouched)


@pytest.mark.parametrize("name", ["bert-model", "roberta-token", "vit-classifier", "timm-distilled"])
def test_blueprint_needs_no_weights(name, tmp_path, monkeypatch):
    """A model without storage says as much as the one with weights; neither is found in a cache."""
    expected = blueprint(random_model(name))
    monkeypatch.setattr(models, "KNOWN", {})
    monkeypatch.setenv("FUSIONLAB_CACHE", str(tmp_path))
    with torch.device("meta"):
        empty = CASES[name].build()
    assert blueprint(empty.double()) == expected


def test_a_module_without_config_or_inputs_is_refused():
    with pytest.raises(SymmetryError, match=re.escape("nothing is known of the inputs of a Linear; expected")):
        blueprint(nn.Linear(2, 2))


def test_descriptions_are_few_and_say_what_they_are_for():
    """A description is one more thing that can be wrong: each says what inference does not see."""
    assert DESCRIBED.names == (
        "timm.VisionTransformer",
        "timm.VisionTransformerDistilled",
        "torch.TransformerEncoder",
    )


@pytest.mark.parametrize("name", ["bert-model", "roberta-model", "vit-model"])
def test_bare_encoders_keep_their_output_basis_and_say_so(name):
    """The hidden states of a bare encoder are its output, so they may not be re-based."""
    description = blueprint(random_model(name))
    assert "residual" not in description.spaces
    assert any(note.startswith("the residual stream is an output (last_hidden_state") for note in description.notes)


def _touched(model: nn.Module, parameter: str) -> bool:
    return parameter not in blueprint(model).untouched()


def _spares_all_but_keys(axis: Axis, wrong: Axis) -> bool:
    """Whether two fused query-key-value axes differ in the keys only, whose bias softmax ignores."""
    assert isinstance(axis, Concat)
    assert isinstance(wrong, Concat)
    return (axis.parts[0], axis.parts[2]) == (wrong.parts[0], wrong.parts[2])


def _without_dual(axis: Axis, space: str) -> Axis:
    match axis:
        case Along() if axis.space == space and axis.is_dual:
            return Fixed(axis.size)
        case Per():
            return Per(axis.space, axis.count, _without_dual(axis.inner, space))
        case Concat():
            return Concat(*(_without_dual(part, space) for part in axis.parts))
    return axis
