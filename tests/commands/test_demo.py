"""`fusionlab demo` tells the whole story without any input."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from fusionlab import checkpoints
from fusionlab.commands import demo
from fusionlab.matching.recipe import recipe
from tests.commands.conftest import Command
from tests.commands.small import digit_scores, vit


def test_demo(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """It finishes, its folder is complete, its numbers are those of its models; it replaces a folder only if told."""
    monkeypatch.chdir(tmp_path)
    story = demo.of_seeds()
    # All matchings would be measured in the same way: the first and one without learning are enough here.
    few = {name: story.matchings[name] for name in ("paper", "weights")}
    monkeypatch.setattr(demo, "of_seeds", lambda: replace(story, matchings=few))
    outcome = command("demo", "--epochs", "1", "--output", "story")
    assert (outcome.code, outcome.err) == (0, "")
    assert {path.name for path in Path("story").iterdir()} == {
        "end_models", "merged", "results.json", "results.csv", "report.html", "plots", "tensorboard",
    }  # fmt: skip
    rows = json.loads(Path("story/results.json").read_text())

    def told(method: str, matching: str, model: str, metric: str = "accuracy") -> float:
        (row,) = [
            r for r in rows
            if (r["method"], r["matching"], r["metric"]) == (method, matching, metric) and model in r["models"]
        ]  # fmt: skip
        return row["value"]

    for number in (1, 2):
        scores = digit_scores(checkpoints.load(f"story/end_models/seed_{number}"))
        assert told("end model", "-", f"seed {number}") == pytest.approx(scores["accuracy"], rel=1e-6)
        assert told("end model", "-", f"seed {number}", "loss") == pytest.approx(scores["loss"], rel=1e-5)
    merged = digit_scores(checkpoints.load("story/merged"))
    assert told("simple", "weights", "seed 1", "loss") == pytest.approx(merged["loss"], rel=1e-5)
    assert told("simple", "paper", "seed 1") >= 0
    assert told("simple", "none", "seed 1") >= 0
    report = Path("story/report.html").read_text()
    assert "fusionlab demo --seed 0" in report
    assert "1 epoch on" in report
    assert "residual stream" in report

    refused = command("demo", "--epochs", "1", "--output", "story")
    assert refused.code == 2
    assert "story exists already" in refused.err
    # What is trained is not the point any more.
    monkeypatch.setattr(demo, "of_seeds", lambda: replace(story, matchings={"paper": recipe("paper")}))
    monkeypatch.setattr(demo, "_train", lambda settings, seed, epochs, changes: vit(seed))
    Path("story/old.txt").write_text("x")
    assert command("demo", "--epochs", "1", "--output", "story", "--overwrite", "--seed", "5").code == 0
    assert not Path("story/old.txt").exists()
    assert "--seed 5" in Path("story/report.html").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["story"]


def test_demo_of_sizes(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small model is grown, which the report tells with its sizes, and the merge has the large one's."""
    story = demo.of_sizes()
    small, large = (changes for _, changes in story.end_models.values())
    assert all(few < large[name] for name, few in small.items())
    monkeypatch.setattr(demo, "of_sizes", lambda: replace(story, matchings={"weights": story.matchings["weights"]}))

    def untrained(settings: Any, seed: int, epochs: int, changes: Mapping[str, int]) -> nn.Module:
        assert epochs == settings["trainer"]["max_epochs"] // 2
        many = 2 if changes == large else 1
        return vit(seed, num_hidden_layers=many, hidden_size=8 * many)

    monkeypatch.setattr(demo, "_train", untrained)
    output = tmp_path / "story"
    outcome = command("demo", "--sizes", "--output", str(output))
    assert (outcome.code, outcome.err) == (0, "")
    assert {path.name for path in (output / "end_models").iterdir()} == {"small", "large"}
    assert checkpoints.load(str(output / "merged")).config.hidden_size == 16
    report = (output / "report.html").read_text()
    assert "fusionlab demo --sizes --seed 0" in report
    assert "residual 8 to 16" in report
    assert "layers 1 to 2" in report
