"""Matching and merging in one call."""

import copy
from typing import Any

import pytest
import torch

import fusionlab
from fusionlab.api import fusing
from fusionlab.errors import InputError
from fusionlab.inputs import Inputs
from fusionlab.statistics.gather import gather
from tests.api.models import MAKERS, Make, batches, closeness, same
from tests.commands.small import vit


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_fuse_is_align_then_merge(make: Make) -> None:
    """Bit by bit, with the same options."""
    models = [make(0), make(1)]
    options = {"spaces": "ffn,attention.vo", "layers": 1, "rescale": "off"}
    fused = fusionlab.fuse(models, "paper", anchor=1, weights=[2, 1], options=options)
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
    assert closeness(fusionlab.fuse([a, copy], "paper"), a) < 1e-5


@pytest.mark.parametrize(("preset", "data"), [("none", None), ("learned", None), ("learned", batches())])
def test_default_is_what_advice_chooses(preset: str, data: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing for fine-tunes of one base, else by learning, on what is drawn if need be; a logger tells, if asked."""
    a, options = vit(0), {"steps": 2, "batch_size": 8} if preset == "learned" else {}
    b = vit(0 if preset == "none" else 1)
    with torch.no_grad():
        b.vit.layers[0].attention.q_proj.weight.mul_(1.01)
    with caplog.at_level("INFO", "fusionlab"):
        fused = fusionlab.fuse([a, b], data=data, options=options)
    assert same(fused, fusionlab.fuse([a, b], preset, data=data, options=options))
    way = "learned on synthetic inputs" if data is None else "learned"
    told = "So nothing is matched." if preset == "none" else f"So they are matched by {way}: about "
    assert told in caplog.text
    caplog.clear()
    fusionlab.fuse([a, b], data=data, options=options)
    assert caplog.text == ""


def test_default_sees_hidden_units_in_another_order() -> None:
    """Although most parameters of the two models are the same."""
    a = vit(0, hidden_size=32, intermediate_size=64)
    hidden = fusionlab.blueprint(a)
    drawn = fusionlab.Alignment.random(hidden, torch.Generator().manual_seed(1)).elements
    copy = fusionlab.Alignment(hidden, {name: e for name, e in drawn.items() if name.endswith("ffn")}).apply(a)
    assert fusionlab.advise(a, copy).case == "partly_one_basis"
    assert closeness(fusionlab.merge([a, copy]), a) > 0.1
    assert closeness(fusionlab.fuse([a, copy]), a) < 1e-4


def test_fuse_passes_its_seed_on() -> None:
    """To what learning draws and to synthetic inputs; a seed among the options is the matching's own."""
    models, options = [vit(0), vit(1)], {"steps": 2, "batch_size": 8}
    fused = fusionlab.fuse(models, "learned", options=options, seed=3)
    assert same(fused, fusionlab.merge(fusionlab.align(models, preset="learned", seed=3, **options)))
    assert same(fused, fusionlab.fuse(models, "learned", options={**options, "seed": 3}))
    assert not same(fused, fusionlab.fuse(models, "learned", options=options, seed=4))


def test_synthetic_inputs_are_drawn_by_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where matching needs inputs and none are given."""
    drawn: list[int] = []

    def synthetic(models: Any, samples: int = 0, seed: int = 0) -> Inputs:
        drawn.append(seed)
        return Inputs.from_batches(batches(), 2)

    monkeypatch.setattr(Inputs, "synthetic", synthetic)
    fusionlab.fuse([vit(0), vit(1)], "activations", seed=7)
    assert drawn == [7]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "nope"}, "nope"),
        ({"method": "ties"}, "needs the base model"),
        ({"method": "regmean"}, "needs Gram matrices"),
        ({"method": "regmean", "data": batches(), "alpha": "much"}, "alpha"),
        ({"weights": [1, 2, 3]}, "weights"),
        ({"method": "slerp", "weights": {"nothing.*": [1, 2]}}, "weights"),
    ],
)
def test_methods_are_refused_before_matching(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], words: str
) -> None:
    """Whatever would be refused of the merge is, when nothing has been looked at yet."""
    monkeypatch.setattr(fusing, "alignments_and_anchor", lambda *_, **__: pytest.fail("was matched"))
    with pytest.raises(InputError, match=words):
        fusionlab.fuse([vit(0), vit(1)], "paper", **options)


def test_a_base_in_a_narrow_type_is_not_rounded_when_it_is_moved() -> None:
    """Task vectors are differences to it: rounded anew in the twins' basis it would add noise to all of them."""
    a, b = vit(0), vit(1)
    base = vit(2).to(torch.bfloat16)
    found = fusionlab.fuse([a, b], "weights", "task_arithmetic", base=base)
    expected = fusionlab.fuse([a, b], "weights", "task_arithmetic", base=copy.deepcopy(base).float())
    torch.testing.assert_close(dict(found.state_dict()), dict(expected.state_dict()))


@pytest.mark.parametrize("dtype", [None, torch.float64])
@pytest.mark.parametrize("preset", ["none", "weights", "paper"])
def test_given_statistics_are_moved_with_the_models(preset: str, dtype: torch.dtype | None) -> None:
    """They are of the end models; the merge is that of statistics that are gathered of the twins."""
    models = [vit(0), vit(1)]
    known = [gather(model, batches(), ("gram",)) for model in models]
    options: dict[str, Any] = {"alpha": 0.9, "dtype": dtype}
    found = fusionlab.fuse(models, preset, "regmean", data=known, **options)
    expected = fusionlab.fuse(models, preset, "regmean", data=batches(), **options)
    for name, tensor in expected.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], tensor, rtol=1e-4, atol=1e-4)
