"""`fusionlab fuse` from a config of Lightning's shape: as by flags, with the Trainer's options, resumable."""

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import fusionlab
from fusionlab import checkpoints
from fusionlab.cli import main
from fusionlab.configs import shipped_folder
from fusionlab.data import Digits
from fusionlab.inputs import Inputs
from tests.commands.conftest import Command
from tests.commands.small import vit
from tests.fusion.test_module import apart
from tests.parts import one_in

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def config(ckpts: Path, folder: Path, **changes: Any) -> Path:
    """A small fusion of two ViTs on the digits."""
    values: dict[str, Any] = {
        "output": str(folder / "out"),
        "points": 0,
        "trainer": {"accelerator": "cpu", "devices": 1, "log_every_n_steps": 1, "enable_progress_bar": False},
        "model": {
            "models": {"a": str(ckpts / "a"), "b": str(ckpts / "b")},
            "match": {"weights": {"sweeps": 50}},
            "methods": {"regmean": {"alpha": 0.5}, "simple": {}},
            "samples": 40,
            "ensemble": True,
            "polish": {"steps": 6, "batch_size": 16},
        },
        "data": {
            "class_path": "fusionlab.FusionData",
            "init_args": {
                "inside": [{"class_path": "fusionlab.data.Digits", "init_args": {"classes": [0, 1, 2]}}],
                "outside": [{"class_path": "fusionlab.data.Digits", "init_args": {"classes": [3, 4]}}],
            },
        },
    }
    for name, value in changes.items():
        values[name] = {**values[name], **value} if isinstance(value, dict) else value
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def rows(output: Path) -> list[dict[str, Any]]:
    """All results but times."""
    return [
        {k: v for k, v in row.items() if k != "seconds"} for row in json.loads((output / "results.json").read_text())
    ]


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own to work in, as logs go into the working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_config_gives_what_flags_give(ckpts: Path, at: Path) -> None:
    """The same merge, the same scores in and out of domain; one log holds the curves and the scores."""
    assert main(["fuse", "--config", str(config(ckpts, at, points=3))]) == 0
    data = "[{class_path: Digits, init_args: {classes: [0, 1, 2]}}]"
    other = "[{class_path: Digits, init_args: {classes: [3, 4]}}]"
    flags = ["--ckpts", str(ckpts / "a"), str(ckpts / "b"), "--match", "weights", "--method", "regmean,simple"]
    flags += ["--hyperparameters", "{regmean: {alpha: 0.5}}", "--samples", "40", "--polish", "6", "--points", "3"]
    flags += ["--data", data, "--out_of_domain", other, "--output", str(at / "flags")]
    assert main(["fuse", *flags]) == 0
    ours, theirs = rows(at / "out"), rows(at / "flags")
    assert len(ours) > 30
    unpolished = [[row for row in found if "polished" not in row["method"]] for found in (ours, theirs)]
    assert unpolished[0] == unpolished[1]
    assert {row["domain"] for row in ours} == {"in", "out", None}
    assert {path.name for path in (at / "out").iterdir()} == {path.name for path in (at / "flags").iterdir()}
    assert main(["fuse", "--config", str(at / "out" / "fusionlab.yaml"), "--output", str(at / "again")]) == 0
    assert rows(at / "again") == ours
    log = EventAccumulator(str(at / "logs" / "mine" / "version_0")).Reload()
    tags = log.Tags()["scalars"]
    assert len(log.Scalars("polishing regmean, weights/loss")) == 6
    assert any("regmean/weights/accuracy" in tag for tag in tags)
    assert any("regmean/none/accuracy" in tag for tag in tags)
    runs = [{run.name for run in folder.iterdir() if run.is_dir()} for folder in (
        at / "logs" / "mine" / "version_0", at / "out" / "tensorboard",
    )]  # fmt: skip
    assert runs[1] <= runs[0]
    summary = EventAccumulator(str(at / "logs" / "mine" / "version_0" / "summary")).Reload().Tags()
    assert summary["images"]
    assert any(tag.startswith("verdict") for tag in summary["tensors"])


@pytest.mark.parametrize(
    ("given", "seed"), one_in(2, [(["--seed", "7"], 7), ([], 0), (["--seed", "7", "--model.seed", "3"], 3)])
)
def test_one_seed_is_that_of_all(ckpts: Path, at: Path, given: list[str], seed: int) -> None:
    """Of what is learned, and of what the report says."""
    model = {"match": {"learned": {"steps": 2, "batch_size": 4}}, "methods": "simple", "polish": None}
    assert main(["fuse", "--config", str(config(ckpts, at, model=model)), *given]) == 0
    assert f"| seed | {seed} |" in (at / "out" / "merged" / "README.md").read_text()
    models = {name: checkpoints.load(ckpts / name) for name in "ab"}

    def fused(seed: int) -> torch.nn.Module:
        inputs = Inputs.of([Digits(classes=[0, 1, 2])], 2, 40, seed)
        how = {"steps": 2, "batch_size": 4}
        return fusionlab.fuse(list(models.values()), "learned", data=inputs, seed=seed, options=how)

    found = checkpoints.load(at / "out" / "merged")
    assert apart(found, fused(seed)) < 1e-4
    assert apart(found, fused(seed + 1)) > 1e-2


def test_end_models_of_two_sizes_are_grown_to_one(at: Path) -> None:
    """When the models are read, so that what does not fit is refused early; and anew by the data that come."""
    for name, model in {"a": vit(0), "b": vit(1, hidden_size=24, num_hidden_layers=3)}.items():
        fusionlab.save(model, at / name)
    main(["fuse", "--config", str(config(at, at))])
    merged: Any = fusionlab.load(at / "out" / "merged")
    assert (merged.config.hidden_size, merged.config.num_hidden_layers) == (24, 3)
    assert "a, grown" in (at / "out" / "merged" / "README.md").read_text()
    assert "so that a (residual 16 to 24" in (at / "out" / "report.html").read_text()


def test_a_fit_that_was_cut_goes_on(ckpts: Path, at: Path) -> None:
    """``--ckpt_path last`` ends where a run that was not cut ends, and nothing was written before."""
    path = config(ckpts, at, trainer={"callbacks": [{"class_path": "ModelCheckpoint", "init_args": {
        "dirpath": str(at / "kept"), "save_last": True, "every_n_train_steps": 2}}]})  # fmt: skip
    whole, again = ["--output", str(at / "whole")], ["--ckpt_path", "last"]
    assert main(["fuse", "--config", str(path), *whole]) == 0
    for file in (at / "kept").iterdir():
        file.unlink()
    values = yaml.safe_load(path.read_text())
    values["trainer"]["callbacks"].append({"class_path": "tests.commands.cut.Cut", "init_args": {"batches": 11}})
    cut = at / "cut.yaml"
    cut.write_text(yaml.safe_dump(values))
    assert main(["fuse", "--config", str(cut)]) == 70
    assert not (at / "out").exists()
    assert (at / "kept" / "last.ckpt").exists()
    assert main(["fuse", "--config", str(path), *again]) == 0
    expected, found = (load_file(at / name / "merged" / "model.safetensors") for name in ("whole", "out"))
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-6)


def test_a_checkpoint_that_is_none_is_one_sentence(ckpts: Path, at: Path, command: Command) -> None:
    """Nothing in it is run, and nothing is written."""
    (at / "bad.ckpt").write_bytes(b"PK not really")
    outcome = command("fuse", "--config", str(config(ckpts, at, ckpt_path=str(at / "bad.ckpt"))))
    assert outcome.code == 2
    assert "bad.ckpt" in outcome.err
    assert not (at / "out").exists()


def test_there_is_no_last_checkpoint_before_the_first(ckpts: Path, at: Path, command: Command) -> None:
    outcome = command("fuse", "--config", config(ckpts, at), "--ckpt_path", "last")
    assert outcome.code == 2
    assert "there is no last checkpoint where this run keeps its own" in outcome.err
    assert not (at / "out").exists()


def test_what_the_method_found_is_in_the_card(ckpts: Path, at: Path) -> None:
    """As the report's notes have it."""
    model = {"match": "none", "methods": {"soup": {}}, "polish": None}
    assert main(["fuse", "--config", str(config(ckpts, at, model=model))]) == 0
    found = re.search(r"\| found by the method \| (Kept .*?) \|", (at / "out" / "merged" / "README.md").read_text())
    assert found is not None
    assert f"unmatched: {found[1]}." in html.unescape((at / "out" / "report.html").read_text())


def test_the_base_model_is_in_the_card(ckpts: Path, at: Path) -> None:
    """As by flags: a merge tells what it was made of."""
    chosen = {"base": str(ckpts / "middle"), "methods": {"ties": {}}, "polish": None}
    assert main(["fuse", "--config", str(config(ckpts, at, model=chosen))]) == 0
    assert "middle (base model)" in (at / "out" / "merged" / "README.md").read_text()


def test_options_of_the_trainer_are_options(ckpts: Path, at: Path) -> None:
    """On the command line as in the config: one batch of every stage."""
    assert main(["fuse", "--config", str(config(ckpts, at)), "--trainer.fast_dev_run", "true"]) == 0
    assert len(rows(at / "out")) > 30


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": {"match": "nope"}}, "matching preset 'nope' does not exist"),
        ({"model": {"match": {"paper": {"sweps": 1}}}}, "matching by paper has no option 'sweps'"),
        ({"model": {"wieghts": [1, 2]}}, "wieghts"),
        ({"model": {"methods": {"regmean": {"alhpa": 1}}}}, "alhpa"),
        ({"model": {"models": {"a": "nowhere"}}}, "nowhere"),
        ({"model": {"methods": {}}}, "methods is empty; expected at least one merge method"),
        ({"trainer": {"precision": "bf16-true"}}, "which rounds the models"),
        ({"trainer": {"strategy": "deepspeed", "devices": 2}}, "and no end model; expected fsdp (in Python"),
        ({"trainer": {"max_epohcs": 1}}, "max_epohcs"),
        ({"data": {"class_path": "fusionlab.data.Nothing"}}, "Nothing"),
        ({"data": {"init_args": {"inside": []}}}, "inside names no data"),
        ({"trainer": 3}, "trainer is 3; expected options of Lightning's Trainer by name"),
        ({"trainer": None}, "trainer is None; expected options of Lightning's Trainer by name"),
        ({"ckpt_path": "nowhere.ckpt"}, "nowhere.ckpt"),
        ({"points": 1}, "points is 1; expected 0 for no lines"),
    ],
)
def test_bad_configs_are_one_sentence(
    ckpts: Path, at: Path, command: Command, changes: dict[str, Any], sentence: str
) -> None:
    """Exit code 2, and nothing is written."""
    outcome = command("fuse", "--config", str(config(ckpts, at, **changes)))
    assert outcome.code == 2
    (line,) = outcome.err.strip().splitlines()
    assert sentence in line
    assert not (at / "out").exists()


def test_an_output_that_exists_is_refused(ckpts: Path, at: Path, command: Command) -> None:
    """Before any work."""
    (at / "out").mkdir()
    (at / "out" / "kept.txt").write_text("mine")
    outcome = command("fuse", "--config", str(config(ckpts, at)))
    assert outcome.code == 2
    assert "exists already; choose another output" in outcome.err
    assert (at / "out" / "kept.txt").read_text() == "mine"


def test_the_shipped_config(ckpts: Path, at: Path) -> None:
    """With the checkpoints that its comment makes, here ones that are there."""
    models = yaml.safe_dump([str(ckpts / name) for name in "ab"], default_flow_style=True).strip()
    path = str(shipped_folder() / "fuse_digits.yaml")
    assert main(["fuse", "--config", path, "--model.models", models, "--trainer.fast_dev_run", "true"]) == 0
    assert (at / "merged_digits" / "report.html").exists()
