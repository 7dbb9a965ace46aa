"""`fusionlab match` writes ordinary checkpoints of the same function, closer to the anchor."""

from pathlib import Path

import pytest
import timm
import torch
from torch import nn
from transformers import BertForSequenceClassification, ViTForImageClassification

from fusionlab import canonical, checkpoints
from fusionlab.commands import match as command_match
from fusionlab.evaluation.distance import parameter_distance
from fusionlab.matching.align_models import Aligned
from fusionlab.matching.recipe import recipe
from fusionlab.stages import Stages
from fusionlab.symmetry import Alignment, blueprint
from tests.commands.conftest import Command
from tests.commands.small import random_logits, weights


def own_library(folder: Path, kind: str) -> nn.Module:
    """A checkpoint as its own library loads it, without fusionlab."""
    if kind == "timm":
        return timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    cls = BertForSequenceClassification if kind == "bert" else ViTForImageClassification
    return cls.from_pretrained(folder, dtype="auto").eval()


def distance(first: nn.Module, second: nn.Module) -> float:
    return parameter_distance(first.state_dict(), second.state_dict())


@pytest.mark.parametrize(
    ("kind", "source", "anchor", "preset"),
    [
        ("vit", "a", "b", "paper"),
        ("bert", "bert_a", "bert_b", "weights"),
        ("timm", "timm_a", "timm_b", "paper"),
        ("vit", "half_a", "half_b", "paper"),
    ],
)
def test_one_source(
    ckpts: Path, tmp_path: Path, command: Command, kind: str, source: str, anchor: str, preset: str
) -> None:
    """The output is itself a checkpoint of the same library, dtype and function, and nearer to the anchor."""
    output = tmp_path / "twin"
    gauge = ["--gauge", "none"]
    outcome = command(
        "match", ckpts / source, "--anchor", ckpts / anchor, "--output", output, "--match", preset, *gauge
    )
    assert (outcome.code, outcome.err) == (0, "")
    original, goal = (own_library(ckpts / name, kind) for name in (source, anchor))
    twin = own_library(output, kind)
    dtype = next(original.parameters()).dtype
    assert {parameter.dtype for parameter in twin.parameters()} == {dtype}
    before, after = random_logits(original), random_logits(twin)
    tolerance = 1e-5 if dtype == torch.float32 else 0.05
    assert (after - before).abs().max() < tolerance * before.abs().max()
    assert (random_logits(goal) - before).abs().max() > 0.3 * before.abs().max(), "the models must differ"
    assert distance(twin, goal) < 0.97 * distance(original, goal)
    assert f"{distance(original, goal):.4f}" in outcome.out
    assert f"{distance(twin, goal):.4f}" in outcome.out


def test_the_alignment_beside_the_twin_makes_it(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """Loaded from its file and applied to the source, the alignment gives the twin's weights to float32's rounding."""
    command("match", ckpts / "a", "--anchor", ckpts / "b", "--output", tmp_path / "twin")
    source = checkpoints.load(ckpts / "a")
    alignment = Alignment.load(tmp_path / "twin" / "fusionlab.alignment.safetensors", blueprint(source))
    made, written = alignment.apply(source).state_dict(), checkpoints.load(tmp_path / "twin").state_dict()
    for name, tensor in made.items():
        torch.testing.assert_close(tensor, written[name], rtol=0, atol=1e-6 * float(written[name].abs().max()))
    names = {path.name for path in (tmp_path / "twin").iterdir()}
    assert names == {
        "config.json", "model.safetensors", "preprocessor_config.json", "fusionlab.alignment.safetensors",
        "fusionlab.yaml", "README.md",
    }  # fmt: skip


def test_several_sources(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """Each has a folder of its own name with its alignment beside it; equal names are told apart by their folders."""
    output = tmp_path / "twins"
    assert command("match", ckpts / "a", ckpts / "c", "--anchor", ckpts / "b", "--output", output).code == 0
    assert {path.name for path in output.iterdir()} == {
        "a", "a.alignment.safetensors", "c", "c.alignment.safetensors", "fusionlab.yaml",
    }  # fmt: skip
    command("match", ckpts / "c", "--anchor", ckpts / "b", "--output", tmp_path / "alone")
    assert weights(output / "c").keys() == weights(tmp_path / "alone").keys()
    for name, tensor in weights(output / "c").items():
        assert torch.equal(tensor, weights(tmp_path / "alone")[name])

    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a").symlink_to(ckpts / "c")
    both = (ckpts / "a", tmp_path / "other" / "a")
    assert command("match", *both, "--anchor", ckpts / "b", "--output", tmp_path / "same").code == 0
    assert random_logits(checkpoints.load(tmp_path / "same" / "other" / "a")).allclose(
        random_logits(checkpoints.load(ckpts / "c")), atol=1e-4
    )
    assert (tmp_path / "same" / ckpts.name / "a" / "model.safetensors").exists()


def test_balanced_gauge_writes_the_anchors_twin_too(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """Both twins keep their functions, both are balanced, and they are nearer than unbalanced ones, which is shown."""
    told = {}
    for gauge in ("none", "balanced"):
        arguments = ("--anchor", ckpts / "b", "--output", tmp_path / gauge, "--gauge", gauge, "--rescale", "off")
        result = command("match", ckpts / "a", *arguments)
        assert result.code == 0
        told[gauge] = result.out
    twins = {name: checkpoints.load(tmp_path / "balanced" / name) for name in ("a", "b")}
    for name, twin in twins.items():
        before = random_logits(checkpoints.load(ckpts / name))
        assert (random_logits(twin) - before).abs().max() < 1e-5 * before.abs().max()
        attention = twin.vit.layers[0].attention
        query, key = (
            torch.cat([linear.weight, linear.bias.unsqueeze(1)], 1).double().unflatten(0, (2, -1))
            for linear in (attention.q_proj, attention.k_proj)
        )
        assert (query @ query.mT).allclose(key @ key.mT, atol=1e-4)
    plain = distance(checkpoints.load(tmp_path / "none"), checkpoints.load(ckpts / "b"))
    assert distance(twins["a"], twins["b"]) < plain
    alone = distance(*(canonical(checkpoints.load(ckpts / name)) for name in ("a", "b")))
    given = distance(*(checkpoints.load(ckpts / name) for name in ("a", "b")))
    for shown in (f"{given:.4f}", f"{alone:.4f}", f"{distance(twins['a'], twins['b']):.4f}", "in the gauge"):
        assert shown in told["balanced"]
    assert "in the gauge" not in told["none"]


def test_a_base_comes_along(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """It is written in the anchor's new basis; where the anchor keeps its own there is nothing to write."""
    paths = (ckpts / "a", "--anchor", ckpts / "b", "--base", ckpts / "c")
    done = command("match", *paths, "--output", tmp_path / "twins", "--match", "weights")
    assert (done.code, done.err) == (0, "")
    assert {path.name for path in (tmp_path / "twins").iterdir() if path.is_dir()} == {"a", "b", "c"}
    anchor, base = (checkpoints.load(ckpts / name) for name in ("b", "c"))
    alignment = Alignment.load(tmp_path / "twins" / "b.alignment.safetensors", blueprint(anchor))
    written, goal = checkpoints.load(tmp_path / "twins" / "c").state_dict(), alignment.apply(base).state_dict()
    assert all(torch.allclose(written[name], goal[name], atol=1e-6) for name in goal)
    assert distance(base, alignment.apply(base)) > 1
    done = command("match", *paths, "--output", tmp_path / "twin", "--match", "paper")
    assert "b keeps its basis, and with it c" in done.out
    assert not (tmp_path / "twin" / "c").exists()


def test_lightning_file(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """A .ckpt comes back as a .ckpt with the same function and entries, its alignment beside it."""
    output = tmp_path / "twin.ckpt"
    source, anchor = (ckpts / f"lightning_{name}.ckpt" for name in "ab")
    assert command("match", source, "--anchor", anchor, "--output", output).code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"twin.ckpt", "twin.alignment.safetensors"}
    twin, original = checkpoints.load(output), checkpoints.load(source)
    assert (random_logits(twin) - random_logits(original)).abs().max() < 1e-5 * random_logits(original).abs().max()
    assert distance(twin, checkpoints.load(anchor)) < distance(original, checkpoints.load(anchor))
    assert torch.load(output, weights_only=True)["epoch"] == 3
    loaded = Alignment.load(tmp_path / "twin.alignment.safetensors", blueprint(original))
    assert distance(loaded.apply(original), twin) == 0


@pytest.mark.parametrize(("at_fault", "gauge"), [(0, "none"), (1, "balanced")], ids=["source", "anchor"])
def test_a_matching_that_changes_the_function_writes_nothing(
    ckpts: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, at_fault: int, gauge: str
) -> None:
    """Were the engine wrong, about the anchor's own twin too, the command would stop with a sentence and no output."""

    def wrong(*arguments: object, **keywords: object) -> Stages[Aligned]:
        yield from ()
        model = blueprint(checkpoints.load(ckpts / "a"))
        stretched = {"layers.0.ffn": torch.zeros(32, dtype=torch.long)}  # one unit 32 times: not a permutation
        found = [Alignment.identity(model), Alignment.identity(model)]
        found[at_fault] = Alignment(model, stretched)
        return Aligned(found, recipe("paper"))

    monkeypatch.setattr(command_match, "align_models", wrong)
    arguments = ("--anchor", ckpts / "b", "--output", tmp_path / "twin", "--gauge", gauge)
    outcome = command("match", ckpts / "a", *arguments)
    assert outcome.code == 2
    assert "changed the model's function" in outcome.err
    assert list(tmp_path.iterdir()) == []
