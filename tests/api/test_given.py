"""Models as people have them: paths, compiled and parallel modules; what is no list of models is told."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from lightning import Fabric
from torch import nn

import fusionlab
from fusionlab import checkpoints
from fusionlab.api.given import module_of, modules_of
from fusionlab.errors import InputError
from tests.api.models import distance, same
from tests.checkpoints.embedding_models import embedding_model
from tests.checkpoints.test_wrapped import two_adapters
from tests.commands.small import bert, vit
from tests.parts import long


@pytest.mark.parametrize(
    "wrap", [pytest.param(torch.compile, id="compiled", marks=long), pytest.param(nn.DataParallel, id="parallel")]
)
def test_wrapped_modules_are_unwrapped(wrap: Any) -> None:
    """The results are those of the plain models, of their class."""
    plain, wrapped = [vit(0), vit(1)], [wrap(vit(0)), wrap(vit(1))]
    merged = fusionlab.merge(wrapped)
    assert type(merged) is type(plain[0])
    assert same(merged, fusionlab.merge(plain))
    assert distance(fusionlab.fuse(wrapped, "weights"), fusionlab.fuse(plain, "weights")) < 1e-4
    assert distance(fusionlab.match(*wrapped).apply(wrapped[0]), fusionlab.match(*plain).apply(plain[0])) < 1e-4


def test_a_module_of_fabric() -> None:
    model = vit(0)
    assert module_of(Fabric(accelerator="cpu", devices=1).setup_module(model), "model") is model


def test_paths_are_read(tmp_path: Path) -> None:
    """In every call that takes modules."""
    models, paths = [vit(0), vit(1)], [str(tmp_path / "a"), tmp_path / "b"]
    for model, path in zip(models, paths, strict=True):
        checkpoints.save(model, path)
    assert distance(fusionlab.merge(paths), fusionlab.merge(models)) < 1e-5
    assert distance(fusionlab.align(paths)[0], fusionlab.align(models)[0]) < 1e-4
    assert distance(fusionlab.match(*paths).apply(models[0]), fusionlab.match(*models).apply(models[0])) < 1e-4
    assert distance(fusionlab.canonical(paths[0]), fusionlab.canonical(models[0])) < 1e-4
    batches = [{"pixel_values": torch.randn(2, 1, 8, 8), "labels": torch.tensor([1, 2])}]
    found, expected = (fusionlab.barrier(*pair, batches, points=3).loss for pair in (paths, models))
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("call", ["merge", "fuse", "align"])
def test_a_forgotten_list(call: str) -> None:
    with pytest.raises(InputError, match=rf"{call} was given a ViT.* another behind it; .* list: {call}\(\[a, b\], "):
        getattr(fusionlab, call)(vit(0), vit(1))


def test_what_is_no_model() -> None:
    with pytest.raises(InputError, match="model 1 of merge is a dict; expected a module, or the path"):
        modules_of([vit(0), {}], "merge")  # type: ignore[list-item]
    with pytest.raises(InputError, match=r"was given a path .* in one list"):
        modules_of("path/to/a", "merge")


def test_other_numbers_of_classes() -> None:
    """The sentence says which parameter, and what helps."""
    with pytest.raises(InputError, match=r"'classifier.weight' has shape 3 x 16 in model 1.*classes: 3 and 10"):
        fusionlab.merge([vit(0), vit(1, num_labels=3)])


def test_a_barrier_needs_labels() -> None:
    with pytest.raises(InputError, match="hold input_ids, without 'labels'"):
        fusionlab.barrier(bert(0), bert(1), [{"input_ids": torch.ones(1, 3, dtype=torch.long)}])


def test_what_prints_is_short() -> None:
    alignment = fusionlab.match(vit(0), vit(1))
    assert repr(alignment) == "Alignment(vit, 6 of 9 spaces changed)"
    assert repr(fusionlab.blueprint(vit(0))).startswith("Blueprint(vit: 9 spaces, ")


def test_nothing_is_advertised(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    """A pass over data says nothing of devices and of other products."""
    batches = [{"pixel_values": torch.randn(8, 1, 8, 8)}]
    fusionlab.merge([vit(0), vit(1)], "regmean", data=batches)
    captured = capfd.readouterr()
    assert captured.out + captured.err + caplog.text == ""


def test_a_blueprint_of_a_path_and_of_no_model(tmp_path: Path) -> None:
    checkpoints.save(vit(0), tmp_path / "a")
    assert fusionlab.blueprint(tmp_path / "a").fingerprint == fusionlab.blueprint(vit(1)).fingerprint
    with pytest.raises(InputError, match="model is an int; expected a module, or the path"):
        fusionlab.blueprint(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrap", [torch.compile, nn.DataParallel], ids=["compiled", "parallel"])
def test_wrapped_modules_are_saved_as_what_they_wrap(wrap: Any, tmp_path: Path) -> None:
    checkpoints.save(wrap(vit(0)), tmp_path / "a")
    assert same(checkpoints.load(tmp_path / "a"), vit(0))
    with pytest.raises(InputError, match=r"to save is the path a; expected a module, as fusionlab\.load"):
        checkpoints.save("a", tmp_path / "b")  # type: ignore[arg-type]


def test_an_alignment_is_applied_to_a_path(tmp_path: Path) -> None:
    """The twin is that of the model that lies there, in its class; a path that leads nowhere is told."""
    model, found = vit(0), fusionlab.match(vit(0), vit(1))
    checkpoints.save(model, tmp_path / "a")
    for path in (tmp_path / "a", str(tmp_path / "a")):
        twin = found.apply(path)
        assert type(twin) is type(model)
        assert same(twin, found.apply(model))
    with pytest.raises(InputError, match="nowhere"):
        found.apply(tmp_path / "nowhere")


def test_what_an_alignment_and_a_line_cannot_take() -> None:
    """They say what to give."""
    with pytest.raises(fusionlab.SymmetryError, match=r"is of type int; expected a module"):
        fusionlab.match(vit(0), vit(1)).apply(3)  # type: ignore[call-overload]
    with pytest.raises(InputError, match=r"data is the path my\.csv; expected batches .*own_data\('my\.csv'"):
        fusionlab.barrier(vit(0), vit(1), "my.csv")  # type: ignore[arg-type]


def test_adapters_inside_of_a_module_are_refused() -> None:
    """The mean of their factors is not the factor of the mean."""
    with_adapter = peft.get_peft_model(bert(0), peft.LoraConfig(r=2, target_modules=["query"]))
    for module in (with_adapter, with_adapter.base_model.model):
        with pytest.raises(InputError, match=r"model 1 of merge has adapters of PEFT inside.*merge_and_unload\(\)"):
            fusionlab.merge([bert(0), module])
    assert type(fusionlab.merge([bert(0), with_adapter.merge_and_unload()])) is type(bert(0))


def test_models_without_numbers_are_refused() -> None:
    with pytest.raises(InputError, match=r"model 1 of align has no numbers \(device meta\); expected a loaded one"):
        fusionlab.align([vit(0), vit(1).to("meta")])


def test_labels_in_another_order_are_refused() -> None:
    """In every call that would make one head of two."""
    first, second = vit(0), vit(1)
    second.config.id2label = {
        0: first.config.id2label[1],
        1: first.config.id2label[0],
        **{place: name for place, name in first.config.id2label.items() if place > 1},
    }
    for call in (fusionlab.merge, fusionlab.align, fusionlab.fuse):
        with pytest.raises(InputError, match="model 1 and model 0 have the same labels in another order"):
            call([first, second])


def test_modules_beside_transformers_are_told(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """Of paths and of models that know theirs, by every call that makes one; not where the modules are the same."""
    a, b, same = (embedding_model(tmp_path / name, seed) for seed, name in enumerate(("a", "b", "same")))
    shutil.copyfile(a / "2_Dense" / "model.safetensors", same / "2_Dense" / "model.safetensors")
    fusionlab.merge([a, same])
    fusionlab.merge([vit(0), vit(1)])
    assert not [one for one in recwarn if "modules" in str(one.message)]
    words = rf"{a} and {b} differ in modules beside their transformers \(2_Dense\), which fusionlab.* of {a}\."
    with pytest.warns(UserWarning, match=words) as found:
        merged = fusionlab.merge([str(a), same, fusionlab.load(b)])
    assert len([one for one in found if "modules" in str(one.message)]) == 1
    with pytest.warns(UserWarning, match=words):
        fusionlab.fuse([a, b], "none")
    fusionlab.save(merged, tmp_path / "m", like=a)
    dense = Path("2_Dense", "model.safetensors")
    assert (tmp_path / "m" / dense).read_bytes() == (a / dense).read_bytes()


def test_damaged_modules_are_left_to_others(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    paths = [embedding_model(tmp_path / name, seed) for seed, name in enumerate("ab")]
    (paths[1] / "modules.json").write_text("{")
    fusionlab.merge(paths)
    assert not [one for one in recwarn if "modules" in str(one.message)]


@pytest.mark.parametrize("call", [fusionlab.merge, partial(fusionlab.fuse, preset="none")], ids=["merge", "fuse"])
def test_adapters_name_their_base(tmp_path: Path, call: Any) -> None:
    """Task vectors are those from the model that all adapters name; of two names, or of none, a base is asked for."""
    base, *_ = two_adapters(tmp_path, "mixtral")
    paths = [tmp_path / name / "adapter" for name in ("one", "two")]
    found = call(paths, method="ties").state_dict()
    expected = call(paths, method="ties", base=base).state_dict()
    before = fusionlab.load(base).state_dict()
    torch.testing.assert_close(found, expected)
    assert any(not torch.allclose(tensor, before[name]) for name, tensor in found.items())
    shutil.copytree(base, tmp_path / "other")
    config = json.loads((paths[1] / "adapter_config.json").read_text())
    (paths[1] / "adapter_config.json").write_text(
        json.dumps(config | {"base_model_name_or_path": str(tmp_path / "other")})
    )
    for given in (paths, [base, paths[0]], [fusionlab.load(path) for path in paths]):
        with pytest.raises(InputError, match="needs the base model"):
            call(given, method="ties")
