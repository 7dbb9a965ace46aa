"""Optimisers of learned matching in the benchmark: their steps, and the page."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.commands.small import randomized
from tests.matching.refining import rotation_left


@pytest.mark.parametrize("name", ["adamw 0.95", "lbfgs"])
def test_optimisers_find_a_rotation(benchmark: Any, name: str) -> None:
    """In coordinates as learned matching has them."""
    one = benchmark("optimisers_tried").TRIED[name]
    assert rotation_left(lambda coordinates: one.make([coordinates], one.rate)) < 0.01


def test_cells_are_measured_once_and_shown(
    benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every optimiser at both numbers of looks, on both kinds of pairs."""
    command = benchmark("optimisers")

    def measured(*_: Any) -> dict[str, Any]:
        return {"barrier": [0.25, 0.5], "loss": [1.0], "seconds": 3.0}

    monkeypatch.setattr(command, "measured", measured)
    monkeypatch.setattr("sys.argv", ["optimisers.py", "--results", str(tmp_path)])
    assert command.main() == 0
    page = (tmp_path / "optimisers.md").read_text()
    assert page.count("| 0.375 | 0.250, 0.500 | 1.0000 | 3 |") == len(command.DIGITS) + len(command.GPT2)
    monkeypatch.setattr(command, "measured", lambda *_: pytest.fail("measured again"))
    assert command.main() == 0
    assert "digits muon 150" in capsys.readouterr().err


def test_a_pair_is_matched_by_the_optimiser(benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twins of two models that nobody trained, by as many looks as were asked for."""
    command = benchmark("optimisers")
    from transformers import ViTConfig, ViTForImageClassification  # noqa: PLC0415 - slow

    sizes: dict[str, Any] = {"num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8, "patch_size": 4}
    config = ViTConfig(hidden_size=8, intermediate_size=8, num_channels=1, num_labels=10, **sizes)
    ends = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        # Far from what they begin with, so that there is something to gain: L-BFGS leaves a batch where there is not.
        ends.append(randomized(ViTForImageClassification(config), seed))
    inputs = [{"pixel_values": torch.randn(16, 1, 8, 8)}]
    scored = [{**inputs[0], "labels": torch.arange(16) % 10}]
    monkeypatch.setattr(command, "pairs", lambda *_: [(ends, inputs, scored)])
    steps: list[str] = []
    original = command.TriedRefinement.loss
    monkeypatch.setattr(
        command.TriedRefinement, "loss", lambda self, *given: (steps.append("look"), original(self, *given))[1]
    )
    for name, looks in (("muon", 20), ("lbfgs", 20)):
        steps.clear()
        found = command.measured("digits", name, looks, Path(), "")
        assert all(map(math.isfinite, (*found["barrier"], *found["loss"], found["seconds"])))
        # Permutations are judged by losses too.
        assert len(steps) >= looks
