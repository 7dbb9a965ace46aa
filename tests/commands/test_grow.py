"""`fusionlab grow` writes an ordinary checkpoint of the larger config; `fusionlab fuse` grows by itself."""

import json
from pathlib import Path

import pytest
import torch

import fusionlab
from tests.api.models import closeness
from tests.commands.conftest import Command
from tests.commands.small import vit
from tests.growing.families import gpt2, timm_vit
from tests.symmetry.models import randomize

LARGER = {"hidden_size": 24, "num_hidden_layers": 3, "intermediate_size": 40, "num_labels": 7}


@pytest.fixture
def sizes(tmp_path: Path) -> Path:
    """A small and a large ViT."""
    fusionlab.save(vit(0), tmp_path / "small")
    fusionlab.save(vit(1, **{**LARGER, "num_labels": 10}), tmp_path / "large")
    return tmp_path


def test_the_grown_model_is_a_checkpoint_of_the_larger_config(sizes: Path, command: Command) -> None:
    outcome = command("grow", sizes / "small", "--like", sizes / "large", "--output", sizes / "grown")
    assert (outcome.code, outcome.err) == (0, "")
    for row in ("residual │ 16 │ 24", "ffn │ 32 │ 40", "layers of vit.layers │ 2 │ 3", "stand at 1, 2."):
        assert row in outcome.out
    assert closeness(fusionlab.load(sizes / "grown"), vit(0)) < 1e-5
    config = json.loads((sizes / "grown" / "config.json").read_text())
    assert (config["hidden_size"], config["num_hidden_layers"]) == (24, 3)
    assert "computes what `small` computes, in the architecture of `large`" in (sizes / "grown/README.md").read_text()


@pytest.mark.parametrize("like", ["config.json", "."], ids=["file", "folder"])
def test_a_config_alone_is_enough(like: str, sizes: Path, command: Command) -> None:
    (sizes / "large" / "model.safetensors").unlink()
    line = ("grow", sizes / "small", "--like", sizes / "large" / like, "--output", sizes / "grown", "--json")
    found = json.loads(command(*line).out)
    assert found["sizes"]["residual"] == {"before": [16, 16], "after": [24, 24]}
    assert found["layers"] == {"vit.layers": {"length": 3, "positions": [1, 2]}}
    assert found["parameters"]["before"] < found["parameters"]["after"]
    assert found["operations"]["before"] < found["operations"]["after"]
    assert found["logits_differ_by"]["float64"] < 1e-12
    assert closeness(fusionlab.load(sizes / "grown"), vit(0)) < 1e-5


def test_timm_folders_grow(tmp_path: Path, command: Command) -> None:
    small = randomize(timm_vit(), 0).float()
    fusionlab.save(small, tmp_path / "small")
    fusionlab.save(randomize(timm_vit(embed_dim=30, depth=3), 1).float(), tmp_path / "large")
    assert command("grow", tmp_path / "small", "--like", tmp_path / "large", "--output", tmp_path / "grown").code == 0
    assert closeness(fusionlab.load(tmp_path / "grown"), small) < 1e-5


def test_untied_embeddings_grow_where_tied_ones_cannot(tmp_path: Path, command: Command) -> None:
    small = randomize(gpt2(), 0).float()
    fusionlab.save(small, tmp_path / "small")
    fusionlab.save(gpt2(n_embd=20), tmp_path / "large")
    line = ("grow", tmp_path / "small", "--like", tmp_path / "large", "--output", tmp_path / "grown")
    outcome = command(*line)
    assert outcome.code == 2
    assert "12 wide and would be 20 wide" in outcome.err
    assert not (tmp_path / "grown").exists()
    assert command(*line, "--untie").code == 0
    assert closeness(fusionlab.load(tmp_path / "grown"), small) < 1e-5


def test_what_cannot_be_grown_is_one_sentence_and_nothing_is_written(sizes: Path, command: Command) -> None:
    outcome = command("grow", sizes / "large", "--like", sizes / "small", "--output", sizes / "grown")
    assert outcome.code == 2
    assert "'vit.layers' has 3 layers and would have 2; expected a larger model with at least 3" in outcome.err
    assert not (sizes / "grown").exists()
    outcome = command("grow", sizes / "small", "--like", sizes / "missing/config.json", "--output", sizes / "grown")
    assert outcome.code == 2
    assert "missing/config.json: there is no such file" in outcome.err


def test_fuse_grows_and_says_so(sizes: Path, command: Command) -> None:
    line = ("fuse", "--ckpts", sizes / "small", sizes / "large", "--match", "weights", "--output", sizes / "fused")
    outcome = command(*line)
    assert outcome.code == 0, outcome.err
    assert "of different sizes, so that small (residual 16 to 24" in outcome.out
    merged = fusionlab.load(sizes / "fused" / "merged")
    assert merged.config.hidden_size == 24  # type: ignore[union-attr]
    with pytest.warns(UserWarning, match="different sizes"):
        expected = fusionlab.fuse([vit(0), vit(1, **{**LARGER, "num_labels": 10})], "weights")
    for name, tensor in expected.state_dict().items():
        torch.testing.assert_close(merged.state_dict()[name], tensor, rtol=1e-4, atol=1e-4)
    assert "small, grown" in (sizes / "fused" / "merged" / "README.md").read_text()


@pytest.mark.parametrize("grows", ["source", "anchor"])
def test_match_grows_whichever_is_smaller(grows: str, sizes: Path, command: Command) -> None:
    """The twins are of one size and compute what their models do; the anchor gets one where it grew."""
    source, anchor = ("small", "large") if grows == "source" else ("large", "small")
    line = ("match", sizes / source, "--anchor", sizes / anchor, "--match", "paper", "--output", sizes / "twins")
    outcome = command(*line)
    assert outcome.code == 0, outcome.err
    assert "different sizes, so that small (residual 16 to 24" in outcome.out
    twins = (
        {"small": sizes / "twins"}
        if grows == "source"
        else {name: sizes / "twins" / name for name in ("small", "large")}
    )
    for name, place in twins.items():
        twin = fusionlab.load(place)
        assert twin.config.hidden_size == 24  # type: ignore[union-attr]
        assert closeness(twin, fusionlab.load(sizes / name)) < 1e-5
    assert "grown" in (twins["small"] / "README.md").read_text()


def test_match_takes_no_base_of_models_of_several_sizes(sizes: Path, command: Command) -> None:
    line = (
        "match",
        sizes / "small",
        "--anchor",
        sizes / "large",
        "--base",
        sizes / "base",
        "--output",
        sizes / "twins",
    )
    fusionlab.save(vit(2), sizes / "base")
    outcome = command(*line)
    assert outcome.code == 2
    assert "the end models and base are of different sizes" in outcome.err
    assert not (sizes / "twins").exists()


def test_a_plain_merge_is_refused_with_the_way_on(sizes: Path, command: Command) -> None:
    outcome = command("merge", sizes / "small", sizes / "large", "--output", sizes / "merged")
    assert outcome.code == 2
    assert "hidden_size: 24 and 16" in outcome.err
    assert "fusionlab fuse grows the smaller one and matches them" in outcome.err
    assert not (sizes / "merged").exists()


def test_barrier_grows_and_says_so(sizes: Path, command: Command) -> None:
    line = ("barrier", sizes / "small", sizes / "large", "--match", "none", "--data", "Digits", "--points", "3")
    outcome = command(*line)
    assert outcome.code == 0, outcome.err
    assert "different sizes, so that small (residual 16 to 24" in outcome.out
