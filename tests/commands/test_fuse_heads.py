"""`fusionlab fuse` on models of different tasks: heads joined by label, or kept."""

import json
from pathlib import Path

import pytest
import torch
import yaml

from fusionlab import checkpoints
from tests.commands.conftest import Command
from tests.commands.fused import rows, value
from tests.commands.small import digit_scores, vit


def labelled(seed: int, labels: list[str], folder: Path) -> Path:
    """A checkpoint whose classes have these names."""
    model = vit(seed, num_labels=len(labels))
    model.config.id2label = dict(enumerate(labels))
    model.config.label2id = {label: index for index, label in enumerate(labels)}
    checkpoints.save(model, folder)
    return folder


def test_heads_of_a_union_of_labels(tmp_path: Path, command: Command) -> None:
    """Models of the digits 0 to 6 and 4 to 9 become one of all ten, measured on them by name."""
    first, second = [str(digit) for digit in range(7)], [str(digit) for digit in range(4, 10)]
    paths = [labelled(0, first, tmp_path / "low"), labelled(1, second, tmp_path / "high")]
    arguments = (
        "--heads",
        "union",
        "--match",
        "paper",
        "--data",
        "Digits",
        "--points",
        "0",
        "--output",
        tmp_path / "out",
    )
    outcome = command("fuse", "--ckpts", *paths, *arguments)
    assert (outcome.code, outcome.err) == (0, "")
    merged = checkpoints.load(tmp_path / "out" / "merged")
    assert list(merged.config.id2label.values()) == [str(digit) for digit in range(10)]
    measured = value(rows(tmp_path / "out"), method="simple", matching="paper", metric="loss")
    assert measured == pytest.approx(digit_scores(merged)["loss"], rel=1e-5)


def test_heads_of_their_own(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """One checkpoint for each task: one body, each its model's head, each measured on its own data alone."""
    paths = [ckpts / "a", labelled(1, [f"class {index}" for index in range(12)], tmp_path / "twelve")]
    config = {
        "ckpts": [str(path) for path in paths],
        "heads": "own",
        "data": [{"class_path": "Digits", "init_args": {"classes": classes}} for classes in ([0, 1, 2], [3, 4])],
    }
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(config))
    outcome = command("fuse", "--config", tmp_path / "own.yaml", "--output", tmp_path / "out")
    assert (outcome.code, outcome.err) == (0, "")
    tasks = {name: checkpoints.load(tmp_path / "out" / "merged" / name) for name in ("a", "twelve")}
    states = [task.state_dict() for task in tasks.values()]
    body = [name for name in states[0] if name.startswith("vit.")]
    assert all(torch.equal(states[0][name], states[1][name]) for name in body)
    assert tasks["twelve"].classifier.weight.shape[0] == 12
    found = [row for row in rows(tmp_path / "out") if row["matching"] == "weights" and row["metric"] == "loss"]
    for name, data_set, classes in (("a", "digits", (0, 1, 2)), ("twelve", "digits 2", (3, 4))):
        assert value(found, data_set=data_set) == pytest.approx(digit_scores(tasks[name], classes)["loss"], rel=1e-5)


def test_a_search_by_scores_on_validation_data(tmp_path: Path, command: Command) -> None:
    """All trials are in the output, which is kept and told; without validation data nothing is written."""
    pytest.importorskip("optuna")
    paths = [labelled(seed, [f"class {index}" for index in range(10)], tmp_path / f"m{seed}") for seed in range(2)]
    arguments = ("fuse", "--ckpts", *paths, "--match", "none", "--search", "2", "--points", "0")
    refused = command(*arguments, "--output", tmp_path / "out")
    assert refused.code == 2
    assert "search chooses by scores on validation data, and there is none; expected data (--data)" in refused.err
    assert not list(tmp_path.glob("out*"))
    words = ("--search.journal", tmp_path / "mine", "--devices", "2")
    refused = command(*arguments, *words, "--output", tmp_path / "out")
    assert "which one process writes, and devices is 2; expected --devices 1, or no journal" in refused.err
    outcome = command(*arguments, "--data", "Digits", "--output", tmp_path / "out")
    assert (outcome.code, outcome.err) == (0, "")
    searched = json.loads((tmp_path / "out" / "search.json").read_text())
    assert (searched["method"], searched["evaluations"]) == ("simple", 2)
    assert searched["trials"][0]["weights"] == [0.5, 0.5]
    merged = checkpoints.load(tmp_path / "out" / "merged")
    measured = value(rows(tmp_path / "out"), method="simple, searched", metric="loss")
    assert measured == pytest.approx(digit_scores(merged)["loss"], rel=1e-5)
    assert "is the best of 2 merges that a search tried" in outcome.out
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out"]
