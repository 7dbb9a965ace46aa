"""The Python calls: modules in, new modules of the same class out, inputs never modified."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fusionlab
from fusionlab import InputError
from fusionlab.evaluation.distance import parameter_distance
from fusionlab.forward import logits
from fusionlab.inputs import Inputs
from tests.commands.small import bert, random_logits, timm_vit, vit

Make = Callable[[int], nn.Module]
MAKERS = {"vit": vit, "bert": bert, "timm": timm_vit}


def copied(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def unchanged(model: nn.Module, before: dict[str, Tensor]) -> bool:
    return all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def same(first: nn.Module, second: nn.Module) -> bool:
    return unchanged(first, copied(second))


def distance(first: nn.Module, second: nn.Module) -> float:
    return parameter_distance(first.state_dict(), second.state_dict())


def closeness(first: nn.Module, second: nn.Module) -> float:
    """Largest difference in float64 logits, relative to the largest logit."""
    left, right = random_logits(first), random_logits(second)
    return float((left - right).abs().max() / right.abs().max())


def batches(sizes: tuple[int, ...] = (5, 3), classes: int = 10) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return [
        {
            "pixel_values": torch.randn(size, 1, 8, 8, generator=generator),
            "labels": torch.randint(classes, (size,), generator=generator),
        }
        for size in sizes
    ]


CALLS: dict[str, Callable[[nn.Module, nn.Module], Any]] = {
    "canonical": lambda a, b: [fusionlab.canonical(a), fusionlab.canonical(b)],
    "match": lambda a, b: [fusionlab.match(a, b).apply(a)],
    "align": lambda a, b: fusionlab.align([a, b], preset="weights"),
    "align none": lambda a, b: fusionlab.align([a, b], preset="none"),
    "merge": lambda a, b: [fusionlab.merge([a, b])],
    "fuse": lambda a, b: [fusionlab.fuse([a, b], options={"gauge": "balanced"})],
}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("call", CALLS)
def test_inputs_stay_and_outputs_are_new(kind: str, call: str) -> None:
    """Inputs keep every bit, also when the outputs are written to; outputs are of their class, in eval mode."""
    a, b = MAKERS[kind](0), MAKERS[kind](1)
    before = copied(a), copied(b)
    for model in CALLS[call](a, b):
        assert type(model) is type(a)
        assert not any(module.training for module in model.modules())
        assert all(parameter.requires_grad for parameter in model.parameters())
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1)
    assert unchanged(a, before[0])
    assert unchanged(b, before[1])


@pytest.mark.parametrize("call", ["match", "barrier"])
def test_calls_that_return_no_model_leave_inputs_alone(call: str) -> None:
    """Inputs keep every bit."""
    a, b = vit(0), vit(1)
    before = copied(a), copied(b)
    fusionlab.match(a, b) if call == "match" else fusionlab.barrier(a, b, batches(), 3)
    assert unchanged(a, before[0])
    assert unchanged(b, before[1])


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


def test_merge_is_the_weighted_mean() -> None:
    """Of every parameter, weights in the order of the models."""
    a, b = vit(0), vit(1)
    merged = fusionlab.merge([a, b], weights=[1, 3])
    for mean, left, right in zip(merged.parameters(), a.parameters(), b.parameters(), strict=True):
        assert mean.double().allclose(0.25 * left.double() + 0.75 * right.double(), atol=1e-6)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_fuse_is_align_then_merge(make: Make) -> None:
    """Bit by bit, with the same options."""
    models = [make(0), make(1)]
    options = {"spaces": "ffn,attention.vo", "layers": 1, "rescale": "off"}
    fused = fusionlab.fuse(models, anchor=1, weights=[2, 1], options=options)
    twins = fusionlab.align(models, 1, "paper", spaces=["ffn", "attention.vo"], layers=[1], rescale="off")
    assert same(fused, fusionlab.merge(twins, weights=[2, 1]))
    assert not same(fused, fusionlab.merge(models, weights=[2, 1]))


def test_fusing_a_model_with_its_rebased_copy_gives_the_model_back() -> None:
    """What averaging destroys, matching saves: the merge computes what both computed."""
    a = vit(0)
    hidden = fusionlab.blueprint(a)
    generator = torch.Generator().manual_seed(1)
    elements = {name: space.group.random(space.copies, generator) for name, space in hidden.spaces.items()}
    copy = fusionlab.Alignment(hidden, {k: v for k, v in elements.items() if k.endswith("ffn")}).apply(a)
    assert closeness(copy, a) < 1e-5
    assert closeness(fusionlab.merge([a, copy]), a) > 0.1
    assert closeness(fusionlab.fuse([a, copy]), a) < 1e-5


def test_fuse_passes_its_seed_on() -> None:
    """To what learning draws and to synthetic inputs; a seed among the options is the matching's own."""
    models, options = [vit(0), vit(1)], {"steps": 2, "batch_size": 8}
    fused = fusionlab.fuse(models, "learned", options=options, seed=3)
    assert same(fused, fusionlab.merge(fusionlab.align(models, preset="learned", seed=3, **options)))
    assert same(fused, fusionlab.fuse(models, "learned", options={**options, "seed": 3}))
    assert not same(fused, fusionlab.fuse(models, "learned", options=options, seed=4))


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


def test_synthetic_inputs_are_drawn_by_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where matching needs inputs and none are given."""
    drawn: list[int] = []

    def synthetic(models: Any, samples: int = 0, seed: int = 0) -> Inputs:
        drawn.append(seed)
        return Inputs.from_batches(batches(), 2)

    monkeypatch.setattr(Inputs, "synthetic", synthetic)
    fusionlab.fuse([vit(0), vit(1)], "activations", seed=7)
    assert drawn == [7]


def test_a_merge_is_scored_on_shared_data_once() -> None:
    """The soup of two models scores both and their mean: three passes over the data, not three for each model."""

    class Counted(list[dict[str, Tensor]]):
        seen = 0

        def __iter__(self) -> Iterator[dict[str, Tensor]]:
            for batch in super().__iter__():
                self.seen += 1
                yield batch

    data = Counted(batches((4,) * 10))
    fusionlab.merge([vit(0), vit(1)], "soup", data=data)
    assert 30 <= data.seen < 40, "what the data are is found out by looking at the first batch"


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


@pytest.mark.parametrize("points", [2, 3, 11])
def test_barrier_by_hand(points: int) -> None:
    """Loss and accuracy of the interpolated models over all samples of uneven batches; the rise above the chord."""
    a, b = vit(0), vit(1)
    curve = fusionlab.barrier(a, b, batches(), points)
    pixels, labels = (torch.cat([batch[name] for batch in batches()]) for name in ("pixel_values", "labels"))
    losses = []
    for index, (position, loss, accuracy) in enumerate(zip(curve.positions, curve.loss, curve.score, strict=True)):
        assert position == pytest.approx(index / (points - 1))
        point = vit(5)
        with torch.no_grad():
            for parameter, start, end in zip(point.parameters(), a.parameters(), b.parameters(), strict=True):
                parameter.copy_((1 - position) * start + position * end)
            found = logits(point, {"pixel_values": pixels})
        losses.append(float(functional.cross_entropy(found, labels)))
        assert loss == pytest.approx(losses[-1], rel=1e-4)
        assert accuracy == pytest.approx(float((found.argmax(-1) == labels).float().mean()))
    rises = [loss - ((1 - t) * losses[0] + t * losses[-1]) for loss, t in zip(losses, curve.positions, strict=True)]
    assert curve.barrier == pytest.approx(max(rises), abs=1e-4)


def test_barrier_refuses_what_it_cannot_measure() -> None:
    """An iterator would be empty at the second point; no batch, one point or other models are no line."""
    a, b = vit(0), vit(1)

    def once() -> Iterator[dict[str, Tensor]]:
        yield from batches()

    for data, points, other, message in (
        (once(), 3, b, "gone through only once"),
        ([], 3, b, "data holds no batch"),
        (batches(), 1, b, "points is 1; expected at least 2"),
        (batches(), 2**63, b, "points is 9223372036854775808; expected at most 10,000"),
        (batches(), 3, bert(), "expected end models of one architecture"),
        (batches(classes=30), 3, b, "10 classes; expected labels from 0 to 9"),
    ):
        with pytest.raises(InputError, match=message):
            fusionlab.barrier(a, other, data, points)


REFUSED: dict[str, tuple[Callable[[nn.Module, nn.Module], Any], str]] = {
    "match space": (lambda a, b: fusionlab.match(a, b, spaces=["qk"]), "spaces names 'qk'; expected some of all"),
    "match layer": (lambda a, b: fusionlab.match(a, b, layers=[2]), "layers asks for '2'; expected layers from 0 to 1"),
    "match rescale": (lambda a, b: fusionlab.match(a, b, rescale="on"), "rescale is 'on'"),  # type: ignore[arg-type]
    "match data": (lambda a, b: fusionlab.match(a, b, data=[1]), "data holds a int; expected batches"),  # type: ignore[arg-type]
    "match other": (lambda a, b: fusionlab.match(a, bert()), "expected end models of one architecture"),
    "align preset": (lambda a, b: fusionlab.align([a, b], preset="learn"), "'learn' does not exist; expected one of"),
    "align steps": (lambda a, b: fusionlab.align([a, b], preset="weights", steps=3), "no option 'steps' .an option of"),
    "align option": (lambda a, b: fusionlab.align([a, b], space="ffn"), "no option 'space'; expected some of"),
    "align gauge": (lambda a, b: fusionlab.align([a, b], gauge="fold"), "gauge names 'fold'"),
    "align anchor": (lambda a, b: fusionlab.align([a, b], 2), "anchor is 2; expected 'nearest' or an index"),
    "align data": (lambda a, b: fusionlab.align([a, b], data=[1]), "data holds a int; expected batches"),  # type: ignore[list-item]
    "align precision": (
        lambda a, b: fusionlab.align([a, b], trainer={"precision": "16-true"}),
        "which rounds the models",
    ),
    "align trainer": (
        lambda a, b: fusionlab.align([a, b], preset="learned", steps=1, trainer={"precison": "32-true"}),
        "unexpected keyword argument 'precison'",
    ),
    "align accelerator": (
        lambda a, b: fusionlab.align([a, b], preset="learned", steps=1, trainer={"accelerator": "gpus"}),
        "accelerator",
    ),
    "align one": (lambda a, b: fusionlab.align([a]), "1 end model was given"),
    "merge method": (lambda a, b: fusionlab.merge([a, b], "fish"), "'fish' does not exist; expected one of"),
    "merge needs": (lambda a, b: fusionlab.merge([a, b], "fisher"), "'fisher' needs the Fisher information"),
    "merge hyperparameter": (lambda a, b: fusionlab.merge([a, b], floor=1), "no hyperparameter 'floor'"),
    "merge data": (lambda a, b: fusionlab.merge([a, b], "fisher", data=[1]), "data holds a int; expected"),  # type: ignore[list-item]
    "merge classes": (lambda a, b: fusionlab.merge([a, bert()]), "expected one class"),
    "merge one": (lambda a, b: fusionlab.merge([a]), "expected at least two"),
    "merge none": (lambda a, b: fusionlab.merge([]), "expected at least two"),
    "fuse option": (lambda a, b: fusionlab.fuse([a, b], options={"space": "ffn"}), "no option 'space'"),
    "fuse hyperparameter": (lambda a, b: fusionlab.fuse([a, b], alpha=1), "no hyperparameter 'alpha'"),
    "canonical gauge": (lambda a, b: fusionlab.canonical(a, ("fold",)), "gauge 'fold' does not exist"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_exist_is_refused(name: str) -> None:
    """One sentence that says what was given and what was expected."""
    call, message = REFUSED[name]
    with pytest.raises(InputError, match=message) as caught:
        call(vit(0), vit(1))
    assert "\n" not in str(caught.value)


def test_public_names() -> None:
    """All that is announced is there; nothing else is invented."""
    for name in fusionlab.__all__:
        assert getattr(fusionlab, name) is not None
        assert name in dir(fusionlab)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = fusionlab.nothing_like_it
