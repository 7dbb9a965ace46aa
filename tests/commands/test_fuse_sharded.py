"""`fusionlab fuse --trainer.strategy fsdp` on two gloo processes: the merge of one, also after it was cut."""

import importlib
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from fusionlab.cli import main
from tests.parts import long
from tests.together import free_port, run_together

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


# Three batches of learning, one of gathering for each model, and the polish, where the second step is lost.
CUT = 7


def config(ckpts: Path, folder: Path, callbacks: Sequence[dict[str, Any]] = ()) -> Path:
    """Learned matching, Gram matrices, RegMean and polish of two ViTs on the digits; kept after every step.

    A step of the polish sees one example, so one of two processes has none, and runs the models all the same.
    """
    kept = {"dirpath": str(folder / "kept"), "save_last": True, "every_n_train_steps": 1}
    keeping = {"class_path": "ModelCheckpoint", "init_args": kept}
    digits = {"class_path": "fusionlab.data.Digits", "init_args": {"classes": [0, 1, 2]}}
    values = {
        "points": 0,
        "trainer": {
            "accelerator": "cpu", "precision": "64-true", "enable_progress_bar": False, "logger": False,
            "limit_train_batches": 3,
            "callbacks": [keeping, *callbacks],
        },
        "model": {
            "models": {"a": str(ckpts / "a"), "b": str(ckpts / "b")}, "samples": 24, "methods": {"regmean": {}},
            "match": "learned",
            "polish": {"steps": 2, "batch_size": 1},
        },
        "data": {"class_path": "fusionlab.FusionData", "init_args": {"inside": [digits]}},
    }  # fmt: skip
    path = folder / ("cut.yaml" if callbacks else "fuse.yaml")
    path.write_text(yaml.safe_dump(values))
    return path


def fuse_as_one_of(rank: int, count: int, port: int, arguments: list[str]) -> None:
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count), "NODE_RANK": "0"}
    os.environ.update(place, LOCAL_RANK=str(rank))
    sys.exit(main(["fuse", *arguments, "--trainer.devices", str(count), "--trainer.strategy", "fsdp"]))


@long
def test_two_processes_fuse_as_one(ckpts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut while they polish, and gone on with from the checkpoint; where models rest nothing is left behind."""
    resting = tmp_path / "resting"
    resting.mkdir()
    monkeypatch.chdir(tmp_path)
    path, two = config(ckpts, tmp_path), ["--output", str(tmp_path / "two")]
    assert main(["fuse", "--config", str(path), "--trainer.devices", "1", "--output", str(tmp_path / "one")]) == 0
    for file in (tmp_path / "kept").iterdir():
        file.unlink()
    monkeypatch.setattr(tempfile, "tempdir", str(resting))
    importlib.import_module("torch._dynamo")  # by FSDP, in each process
    cut = config(ckpts, tmp_path, [{"class_path": "tests.commands.cut.Cut", "init_args": {"batches": CUT}}])
    assert run_together(fuse_as_one_of, free_port(), ["--config", str(cut), *two]) == [70, 70]
    state = torch.load(tmp_path / "kept" / "last.ckpt", weights_only=True)["stages"]
    assert (len(state["results"]), state["stage"][1]["done"]) == (3, 1), "a learned matching, two gatherings, a step"
    again = ["--config", str(path), *two, "--ckpt_path", "last"]
    assert run_together(fuse_as_one_of, free_port(), again) == [0, 0]
    expected, found = (load_file(tmp_path / name / "merged" / "model.safetensors") for name in ("one", "two"))
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=2e-4)
    assert not list(resting.glob("fusionlab-model-*"))
