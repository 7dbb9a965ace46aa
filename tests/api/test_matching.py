"""Canonical gauges, alignments and twins by the Python calls."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fusionlab
from fusionlab.errors import InputError
from fusionlab.symmetry.axes import Fixed
from fusionlab.symmetry.infer.keys import key_of
from fusionlab.symmetry.infer.models import KNOWN
from tests.api.models import MAKERS, Make, batches, closeness, distance, same
from tests.commands.small import vit


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_match_keeps_the_function_and_comes_closer(make: Make) -> None:
    """The twin's logits are the source's; it is nearer to the anchor than the source was."""
    a, b = make(0), make(1)
    twin = fusionlab.match(a, b).apply(a)
    assert closeness(twin, a) < 1e-5
    assert closeness(b, a) > 0.1
    assert distance(twin, b) < 0.97 * distance(a, b)


def test_match_recovers_a_hidden_basis() -> None:
    """A model that was re-based by rotations and permutations is brought back to where it came from."""
    a = vit(0)
    generator = torch.Generator().manual_seed(0)
    rotation = torch.linalg.qr(torch.randn(8, 8, generator=generator))[0]
    hidden = fusionlab.blueprint(a)
    elements = {"layers.0.ffn": torch.randperm(32, generator=generator), "layers.1.vo": rotation.expand(2, 8, 8)}
    moved = fusionlab.Alignment(hidden, elements).apply(a)
    assert distance(moved, a) > 1
    assert distance(fusionlab.match(moved, a, rescale="off").apply(moved), a) < 1e-5


def test_options_of_match() -> None:
    """Spaces, layers and rescale say what moves."""
    a, b = vit(0), vit(1)
    assert set(fusionlab.match(a, b, spaces=["ffn"]).elements) == {"layers.0.ffn", "layers.1.ffn"}
    assert set(fusionlab.match(a, b, spaces="attention.qk", layers=[1]).elements) == {"layers.1.qk"}
    assert set(fusionlab.match(a, b, layers="first:1").elements) == {"layers.0.qk", "layers.0.vo", "layers.0.ffn"}
    rigid = fusionlab.match(a, b, rescale="off").elements["layers.0.qk"]
    scaled = fusionlab.match(a, b, rescale="joint").elements["layers.0.qk"]
    identity = torch.eye(8, dtype=rigid.dtype).expand_as(rigid)
    assert (rigid @ rigid.mT).allclose(identity, atol=1e-5)
    assert not (scaled @ scaled.mT).allclose(identity, atol=1e-5)


@pytest.mark.parametrize("preset", ["weights", "git-rebasin", "learned"])
def test_match_takes_presets(preset: str) -> None:
    """The function is kept, the anchor stays as it is, and options reach the preset."""
    a, b = vit(0), vit(1)
    options: dict[str, Any] = {"steps": 2, "data": batches()} if preset == "learned" else {}
    found = fusionlab.match(a, b, preset=preset, **options)
    twin, expected = found.apply(a), fusionlab.align([a, b], 1, preset, gauge=(), **options)
    assert closeness(twin, a) < 1e-5
    assert same(twin, expected[0])
    assert same(expected[1], b)
    assert "residual" in found.elements or preset == "learned"


def test_match_without_a_preset_takes_no_more_options() -> None:
    assert fusionlab.match(vit(0), vit(1), preset="none").elements == {}
    with pytest.raises(fusionlab.InputError, match="no option 'steps' without a preset"):
        fusionlab.match(vit(0), vit(1), steps=3)
    with pytest.raises(fusionlab.InputError, match="preset 'wieghts' does not exist"):
        fusionlab.match(vit(0), vit(1), preset="wieghts")


@pytest.mark.parametrize("anchor", [None, 0, 1, 2, "2"])
def test_align_keeps_order_and_anchor(anchor: int | str | None) -> None:
    """Twins come in the order of the models, each with its own function; the anchor's is the anchor itself."""
    models = [vit(seed) for seed in range(3)]
    twins = fusionlab.align(models, anchor)
    index = int(anchor or 0)
    for position, (model, twin) in enumerate(zip(models, twins, strict=True)):
        assert closeness(twin, model) < 1e-5
        if position == index:
            assert same(twin, model)
        else:
            assert same(twin, fusionlab.match(model, models[index]).apply(model))


def test_align_nearest() -> None:
    """The model nearest to the mean of all keeps its basis."""
    ends = [vit(0), vit(1)]
    middle = fusionlab.merge(ends, weights=[0.45, 0.55])
    models = [ends[0], ends[1], middle]
    twins = fusionlab.align(models, "nearest")
    assert [same(twin, model) for twin, model in zip(twins, models, strict=True)] == [False, False, True]


@pytest.mark.parametrize("gauge", ["folded", "balanced", "folded,balanced"])
def test_gauges_are_the_anchors_too(gauge: str) -> None:
    """Where a gauge is part of the matching, every twin is in it."""
    a, b = vit(0), vit(1)
    first, second = fusionlab.align([a, b], preset="weights", gauge=gauge)
    assert distance(first, fusionlab.canonical(a, gauge.split(","))) < 1e-4
    assert closeness(second, b) < 1e-4


def test_preset_none_changes_nothing() -> None:
    """Twins are copies."""
    a, b = vit(0), vit(1)
    assert [same(twin, model) for twin, model in zip(fusionlab.align([a, b], preset="none"), (a, b), strict=True)] == [
        True, True,
    ]  # fmt: skip


@pytest.mark.parametrize("preset", ["activations", "learned"])
def test_passes_run_under_the_trainer_asked_for(preset: str) -> None:
    """An empty mapping is the default; in half precision other twins are found, of the same functions."""
    models: list[nn.Module] = [vit(0), vit(1)]
    how: dict[str, Any] = {"preset": preset, "data": batches()}
    how |= {"steps": 3, "batch_size": 8} if preset == "learned" else {}
    whole, same_again, half = (
        fusionlab.align(models, **how, trainer=trainer) for trainer in (None, {}, {"precision": "bf16-mixed"})
    )
    assert same(whole[1], same_again[1])
    assert not same(whole[1], half[1])
    assert max(closeness(twin, model) for twin, model in zip(half, models, strict=True)) < 1e-5


def test_canonical_keeps_the_function_and_balances_heads() -> None:
    """In every head Q Q^T = K K^T and V V^T = O^T O, biases included; the logits stay."""
    model = vit(0)
    balanced = fusionlab.canonical(model)
    assert closeness(balanced, model) < 1e-4
    for layer, old in zip(balanced.vit.layers, model.vit.layers, strict=True):
        query, key, value = (_rows(getattr(layer.attention, f"{name}_proj")) for name in "qkv")
        output = layer.attention.o_proj.weight.double().T.unflatten(0, (2, -1))
        assert (query @ query.mT).allclose(key @ key.mT, atol=1e-4)
        assert (value @ value.mT).allclose(output @ output.mT, atol=1e-4)
        before = [_rows(getattr(old.attention, f"{name}_proj")) for name in "qk"]
        assert not (before[0] @ before[0].mT).allclose(before[1] @ before[1].mT, atol=1e-1)
    assert same(fusionlab.canonical(balanced), balanced) or distance(fusionlab.canonical(balanced), balanced) < 1e-4
    assert same(fusionlab.canonical(model, ()), model)


def _rows(linear: nn.Linear) -> Tensor:
    """Weight and bias of a projection, by head, in float64."""
    return torch.cat([linear.weight, linear.bias.unsqueeze(1)], 1).double().unflatten(0, (2, -1)).detach()


def test_twins_of_a_wrong_blueprint_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the commands refuse them: a space that forgets one of the matrices it runs through."""

    class Net(torch.nn.Sequential):
        pass

    torch.manual_seed(0)
    models = [Net(torch.nn.Linear(6, 9), torch.nn.GELU(), torch.nn.Linear(9, 4)) for _ in range(2)]
    right = fusionlab.blueprint(models[0], {"input": torch.randn(3, 6)})
    wrong = replace(right, parameters={**right.parameters, "2.weight": (Fixed(), Fixed())})
    monkeypatch.setitem(KNOWN, key_of(models[0]), wrong)
    for call in (
        lambda: fusionlab.match(*models),
        lambda: fusionlab.align(models, preset="weights"),
        lambda: fusionlab.fuse(models, preset="weights"),
    ):
        with pytest.raises(InputError, match="matching changed the model's function"):
            call()
    monkeypatch.setitem(KNOWN, key_of(models[0]), replace(wrong, inputs=()))
    assert fusionlab.match(*models).elements, "nothing to check it on"
