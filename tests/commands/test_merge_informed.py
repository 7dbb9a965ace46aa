"""`fusionlab merge --statistics` of folders needs no model in memory where the method needs nothing else."""

import json
import shutil
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file

from fusionlab import checkpoints
from fusionlab.commands import merge_models
from fusionlab.merging import merge_states
from fusionlab.statistics.files import load, save
from fusionlab.statistics.gather import gather
from fusionlab.streaming import twins
from tests.commands.conftest import Command


@pytest.fixture(scope="module")
def statistics(ckpts: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Files of statistics of ``a``, ``b`` and ``c``."""
    files = []
    for seed, name in enumerate("abc"):
        draw = torch.Generator().manual_seed(seed)
        data = [{"pixel_values": torch.randn(4, 1, 8, 8, generator=draw)} for _ in range(2)]
        files.append(tmp_path_factory.mktemp("statistics") / f"{name}.safetensors")
        save(gather(checkpoints.load(ckpts / name), data, ("gram", "fisher")), files[-1])
    return files


@pytest.fixture
def no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails where models are read as a whole."""
    monkeypatch.setattr(merge_models, "run", lambda *_: pytest.fail("models were read"))


@pytest.mark.parametrize("method", ["regmean", "fisher"])
@pytest.mark.usefixtures("no_models")
def test_no_model_is_in_memory(
    ckpts: Path, statistics: list[Path], tmp_path: Path, command: Command, method: str
) -> None:
    """The merge is that of models in memory; the table tells weights, the folder has its card and reads as a model."""
    options = ["--method", method, "--statistics", *statistics, "--weights", "1", "3"]
    outcome = command("merge", ckpts / "a", ckpts / "b", *options, "--output", tmp_path / "out", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    states = [checkpoints.load(ckpts / name).state_dict() for name in "ab"]
    known = [load(file, state) for file, state in zip(statistics, states, strict=False)]
    expected = merge_states(states, method, (0.25, 0.75), statistics=known)
    for name, tensor in checkpoints.load(tmp_path / "out").state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-5, atol=1e-6)
    told = json.loads(outcome.out)
    assert [model["weight"] for model in told["models"]] == [0.25, 0.75]
    assert method in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize("method", ["regmean", "fisher"])
@pytest.mark.usefixtures("no_models")
def test_no_model_of_timm_is_in_memory(tmp_path: Path, command: Command, method: str) -> None:
    """A net with BatchNorm, whose counts are integers, merged as in memory; its own statistics twice are refused."""
    for seed, name in enumerate("ab"):
        torch.manual_seed(seed)
        model = timm.create_model("test_resnet", num_classes=3, in_chans=1).eval()
        checkpoints.save(model, tmp_path / name)
        data = [{"0": torch.randn(3, 1, 16, 16)} for _ in range(2)]
        save(gather(checkpoints.load(tmp_path / name), data, ("gram", "fisher")), tmp_path / f"{name}.stats")
    files = [tmp_path / f"{name}.stats" for name in "ab"]
    line = ["merge", tmp_path / "a", tmp_path / "b", "--method", method, "--output", tmp_path / "out"]
    outcome = command(*line, "--statistics", files[0])
    assert (outcome.code, "statistics of each model are needed" in outcome.err) == (2, True)
    assert command(*line, "--statistics", *files).code == 0
    states = [checkpoints.load(tmp_path / name).state_dict() for name in "ab"]
    known = [load(file, state) for file, state in zip(files, states, strict=True)]
    expected = merge_states(states, method, statistics=known)
    found = checkpoints.load(tmp_path / "out").state_dict()
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("no_models")
def test_statistics_of_another_model_are_refused(
    ckpts: Path, statistics: list[Path], tmp_path: Path, command: Command
) -> None:
    """By digests, with nothing written and no model in memory: of another model, of one kind, and damaged."""
    out = ["--output", tmp_path / "out"]
    options = ["--method", "regmean", "--statistics", statistics[0], statistics[2], *out]
    outcome = command("merge", ckpts / "a", ckpts / "b", *options)
    assert (outcome.code, "gram statistics of each model are needed" in outcome.err) == (2, True)
    assert f"those given were measured on other models than {ckpts / 'b'} (or before" in outcome.err
    grams = tmp_path / "grams.safetensors"
    save([load(statistics[1])["gram"]], grams)
    options = ["--method", "fisher", "--statistics", statistics[0], grams, *out]
    outcome = command("merge", ckpts / "a", ckpts / "b", *options)
    assert f"and those given of {ckpts / 'b'} are gram alone; expected data to gather them on" in outcome.err
    assert "or statistics that `fusionlab gather --kinds fisher` wrote" in outcome.err
    damaged = tmp_path / "damaged.safetensors"
    shutil.copy(statistics[1], damaged)
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    for method in ("regmean", "fisher"):
        options = ["--method", method, "--statistics", statistics[0], damaged, *out]
        outcome = command("merge", ckpts / "a", ckpts / "b", *options)
        assert (outcome.code, "its checksum does not fit what it holds" in outcome.err) == (2, True)
        assert str(damaged) in outcome.err
    options = ["--method", "fisher", "--hyperparameters.labels", "expected", "--statistics", *statistics[:2], *out]
    outcome = command("merge", ckpts / "a", ckpts / "b", *options)
    assert (outcome.code, "labels is 'expected', but the fisher statistics were gathered" in outcome.err) == (2, True)
    options = ["--method", "regmean", "--hyperparameters.alpha", '{"*": 0.5}', "--statistics", *statistics[:2], *out]
    outcome = command("merge", ckpts / "a", ckpts / "b", *options)
    assert (outcome.code, "expected one value for the whole model" in outcome.err) == (2, True)
    assert {path.name for path in tmp_path.iterdir()} == {damaged.name, grams.name}


@pytest.mark.usefixtures("no_models")
def test_a_model_that_was_changed_is_refused(
    ckpts: Path, statistics: list[Path], tmp_path: Path, command: Command
) -> None:
    """One number is another than when the statistics were gathered."""
    shutil.copytree(ckpts / "b", tmp_path / "b")
    file = tmp_path / "b" / "model.safetensors"
    tensors = load_file(file)
    tensors["classifier.bias"][0] += 1e-6
    save_file(tensors, file, metadata={"format": "pt"})
    options = ["--method", "fisher", "--statistics", *statistics, "--output", tmp_path / "out"]
    outcome = command("merge", ckpts / "a", tmp_path / "b", *options)
    assert (outcome.code, "fisher statistics of each model are needed" in outcome.err) == (2, True)
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_models")
def test_goes_on_with_the_same_statistics_alone(
    ckpts: Path, statistics: list[Path], tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--resume` takes up what is complete, and refuses other files of statistics."""
    files = [shutil.copy(file, tmp_path / f"{place}.safetensors") for place, file in enumerate(statistics[:2])]
    options = ["--method", "regmean", "--max-shard-size", "2KB", "--resume", "--output", tmp_path / "out"]
    line = ["merge", ckpts / "a", ckpts / "b", *options, "--statistics", *files]
    plain, calls = twins.PartReader.write, []

    def ended(*arguments: object) -> object:
        calls.append(arguments)
        if len(calls) == 20:
            raise KeyboardInterrupt
        return plain(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(twins.PartReader, "write", ended)
    assert command(*line).code != 0
    assert len(list(tmp_path.glob(".*"))) == 1
    other = tmp_path / "2.safetensors"
    shutil.copy(files[1], other)
    outcome = command(*line[:-1], other)
    assert (outcome.code, "statistics differs" in outcome.err) == (2, True)
    before = len(calls)
    assert command(*line).code == 0
    resumed = len(calls) - before
    calls.clear()
    calls += [()] * 20
    whole = [*options[:-1], tmp_path / "whole", "--statistics", *files]
    assert command("merge", ckpts / "a", ckpts / "b", *whole).code == 0
    assert resumed < len(calls) - 20
    found, expected = (
        {path.name: path.read_bytes() for path in (tmp_path / name).glob("*.safetensors")} for name in ("out", "whole")
    )
    assert found == expected
