"""`fusionlab shrink` writes an ordinary checkpoint of the smaller config."""

import json
from pathlib import Path

import pytest

import fusionlab
from fusionlab.data import Digits
from tests.api.models import closeness
from tests.commands.conftest import Command
from tests.commands.small import vit
from tests.growing.families import timm_vit
from tests.symmetry.models import randomize

LARGER = {"hidden_size": 24, "num_hidden_layers": 3, "intermediate_size": 40}


@pytest.fixture
def sizes(tmp_path: Path) -> Path:
    """A small ViT, the same grown, and a large one."""
    fusionlab.save(vit(0), tmp_path / "small")
    fusionlab.save(vit(1, **LARGER), tmp_path / "large")
    fusionlab.save(fusionlab.grow(vit(0), vit(1, **LARGER)), tmp_path / "grown")
    return tmp_path


def test_a_grown_model_comes_back(sizes: Path, command: Command) -> None:
    outcome = command("shrink", sizes / "grown", "--like", sizes / "small" / "config.json", "--output", sizes / "back")
    assert (outcome.code, outcome.err) == (0, "")
    for row in ("residual │ 24 │ 16", "layers of vit.layers │ 3 │ 2", "Layers 1, 2 of vit.layers were kept."):
        assert row in outcome.out
    assert closeness(fusionlab.load(sizes / "back"), vit(0)) < 1e-4
    assert json.loads((sizes / "back" / "config.json").read_text())["hidden_size"] == 16
    assert "what the architecture of" in (sizes / "back/README.md").read_text()


def test_timm_folders_shrink(tmp_path: Path, command: Command) -> None:
    small = randomize(timm_vit(), 0).float()
    fusionlab.save(small, tmp_path / "small")
    fusionlab.save(fusionlab.grow(small, timm_vit(embed_dim=30, depth=3)), tmp_path / "grown")
    line = ("shrink", tmp_path / "grown", "--like", tmp_path / "small", "--output", tmp_path / "back", "--json")
    found = json.loads(command(*line).out)
    assert found["sizes"]["residual"] == {"before": [30, 30], "after": [small.embed_dim] * 2}
    assert found["parameters"]["before"] > found["parameters"]["after"]
    assert [len(stack["kept"]) for stack in found["layers"].values()] == [2]
    assert found["output"] == str(tmp_path / "back")
    assert closeness(fusionlab.load(tmp_path / "back"), small) < 1e-4


def test_polish_brings_it_nearer_to_the_large_model(sizes: Path, command: Command) -> None:
    line = ("shrink", sizes / "large", "--like", sizes / "small", "--probes", "Digits", "--samples", "100")
    assert command(*line, "--polish", "20", "--output", sizes / "polished").code == 0
    plain = fusionlab.shrink(sizes / "large", sizes / "small")
    images = next(iter(Digits().test_dataloader()))["pixel_values"]
    large, left, polished = (
        model(pixel_values=images).logits.softmax(-1).detach()
        for model in (vit(1, **LARGER), plain, fusionlab.load(sizes / "polished"))
    )
    assert float((polished - large).norm()) < float((left - large).norm())


def test_inputs_without_polish_are_refused(sizes: Path, command: Command) -> None:
    line = ("shrink", sizes / "large", "--like", sizes / "small", "--output", sizes / "out")
    outcome = command(*line, "--probes", "Digits")
    assert outcome.code == 2
    assert "expected --polish with them" in outcome.err
    assert not (sizes / "out").exists()
