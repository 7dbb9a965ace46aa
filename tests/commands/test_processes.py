"""Commands on several devices: one process writes, and no example counts twice."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch
from lightning.pytorch.utilities import rank_zero_only
from safetensors.torch import load_file

from fusionlab import checkpoints
from fusionlab.cli import main
from fusionlab.commands import match_stream
from tests.commands.conftest import Command
from tests.commands.small import digit_scores
from tests.together import free_port, run_together


def run_as_one_of(rank: int, count: int, port: int, arguments: list[str]) -> None:
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(count), NODE_RANK="0", LOCAL_RANK=str(rank)
    )
    sys.exit(main([*arguments, "--devices", str(count)]))


def test_two_processes_write_once_and_count_once(ckpts: Path, tmp_path: Path) -> None:
    """397 test images on two gloo processes: both end well, and the one folder has the numbers of one process.

    Lightning's own sampler would give each process 199 images, one of them twice.
    """
    arguments = ["fuse", "--ckpts", str(ckpts / "a"), str(ckpts / "b"), "--data", "Digits", "--output"]
    arguments += [str(tmp_path / "out"), "--points", "0", "--steps", "20", "--accelerator", "cpu"]
    assert run_together(run_as_one_of, free_port(), arguments) == [0, 0]
    rows = json.loads((tmp_path / "out" / "results.json").read_text())
    changes = [row for row in rows if row["metric"].endswith("_change")]
    assert [(row["metric"], row["examples"]) for row in changes] == [("loss_change", 397), ("accuracy_change", 397)]
    assert all(row["lower"] <= row["value"] <= row["upper"] for row in changes)
    scores = [row for row in rows if row["data_set"] is not None and row not in changes and row["matching"] != "none"]
    found = {(row["method"], *row["models"], row["metric"]): row["value"] for row in scores}
    assert len(found) == len(scores) == 8, "two end models, their ensemble and the matched merge"
    models = {
        ("end model", "a"): checkpoints.load(ckpts / "a"),
        ("end model", "b"): checkpoints.load(ckpts / "b"),
        ("simple", "a", "b"): checkpoints.load(tmp_path / "out" / "merged"),
    }
    for key, model in models.items():
        for metric, value in digit_scores(model).items():
            assert found[*key, metric] == pytest.approx(value, rel=1e-5)


def match_as_one_of(rank: int, count: int, port: int, arguments: list[str]) -> None:
    """As torchrun starts it; `rank_zero_only` asks the environment when it is imported, which was before."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "test"}
    os.environ.update(place, WORLD_SIZE=str(count), RANK=str(rank), LOCAL_RANK=str(rank))
    rank_zero_only.rank = rank
    sys.exit(main(["match", *arguments]))


@pytest.mark.parametrize("by_parts", [False, True], ids=["in memory", "by parts"])
def test_two_processes_match_as_one(
    ckpts: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, by_parts: bool
) -> None:
    """Started by torchrun they share the layers, and the one folder has the twin that one process makes."""
    if by_parts:
        monkeypatch.setattr(match_stream, "IN_MEMORY", 0)
    arguments = [str(ckpts / "a"), "--anchor", str(ckpts / "b"), "--match", "weights", "--output"]
    assert command("match", *arguments, tmp_path / "one").code == 0
    assert run_together(match_as_one_of, free_port(), [*arguments, str(tmp_path / "two")]) == [0, 0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]
    files = [sorted(p.relative_to(tmp_path / n) for p in (tmp_path / n).rglob("*")) for n in ("one", "two")]
    assert files[0] == files[1]
    for file in (path for path in files[0] if path.suffix == ".safetensors"):
        wanted, found = (load_file(tmp_path / name / file) for name in ("one", "two"))
        assert wanted.keys() == found.keys()
        for name, tensor in wanted.items():
            torch.testing.assert_close(found[name], tensor, rtol=1e-3, atol=1e-5)


def test_two_processes_match_by_weights_alone(ckpts: Path, tmp_path: Path) -> None:
    arguments = [str(ckpts / "a"), "--anchor", str(ckpts / "b"), "--match", "learned", "--output", str(tmp_path / "o")]
    assert run_together(match_as_one_of, free_port(), arguments) == [2, 2]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["fuse", "merge", "barrier"])
def test_other_processes_write_and_print_nothing(
    ckpts: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """They do the work, as all must for a pass to end, and leave the rest to the first."""
    arguments = {
        "fuse": ("--ckpts", ckpts / "a", ckpts / "b", "--match", "weights"),
        "merge": (ckpts / "a", ckpts / "b"),
        "barrier": (ckpts / "a", ckpts / "b", "--data", "Digits", "--points", "3", "--match", "none"),
    }
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    if name == "merge":
        # What a launcher says; merging files asks nobody else.
        monkeypatch.setenv("LOCAL_RANK", "1")
    outcome = command(name, *arguments[name], "--output", tmp_path / "out")
    assert (outcome.code, outcome.err) == (0, "")
    # A Trainer on one device takes itself for the first, so its progress bars may be there.
    assert "Report" not in outcome.out
    assert "\N{BOX DRAWINGS HEAVY HORIZONTAL}\N{BOX DRAWINGS HEAVY DOWN AND HORIZONTAL}" not in outcome.out, "a table"
    assert not list(tmp_path.iterdir())
