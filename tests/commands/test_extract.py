"""`fusionlab extract` writes a model's difference from its base model as an adapter, and says what that captures."""

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from fusionlab import checkpoints
from tests.commands.conftest import Command
from tests.commands.small import vit
from tests.commands.test_lora import CONFIG


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    """A base model, and one that differs by three directions in every projection of queries and values."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(CONFIG)
    checkpoints.save(model, tmp_path / "base")
    with torch.no_grad():
        for layer in model.model.layers:
            for part in (layer.self_attn.q_proj, layer.self_attn.v_proj):
                part.weight += torch.randn(part.weight.shape[0], 3) @ torch.randn(3, part.weight.shape[1])
    checkpoints.save(model, tmp_path / "tuned")
    return tmp_path


def test_an_adapter_that_is_the_model(tuned: Path, command: Command) -> None:
    """The rank of the difference is enough; merged alone with the base model it is half the way."""
    line = ("extract", tuned / "tuned", "--base", tuned / "base", "--rank", 3, "--output", tuned / "adapter")
    outcome = command(*line)
    assert (outcome.code, outcome.err) == (0, "")
    for kind in ("q", "v"):
        assert f"model.layers.*.self_attn.{kind}_proj │ 2 │ 100.0% │ 100.0%" in outcome.out
    found = json.loads(command(*line, "--overwrite", "--json").out)
    assert (found["model"], found["base"], found["rank"]) == ("tuned", "base", 3)
    assert found["captured"]["model.layers.0.self_attn.q_proj"] == pytest.approx(1, abs=1e-5)
    assert {file.name for file in (tuned / "adapter").iterdir()} == {
        "README.md", "adapter_config.json", "adapter_model.safetensors",
    }  # fmt: skip
    assert "model.layers.1.self_attn.v_proj" in (tuned / "adapter" / "README.md").read_text()
    config = json.loads((tuned / "adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["task_type"]) == (3, "CAUSAL_LM")
    expected, found = load_file(tuned / "tuned" / "model.safetensors"), checkpoints.load(tuned / "adapter").state_dict()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-5)
    assert command("merge", tuned / "adapter", tuned / "tuned", "--output", tuned / "same").code == 0
    merged = load_file(tuned / "same" / "model.safetensors")
    torch.testing.assert_close(merged, expected, rtol=1e-5, atol=1e-5)


def test_changes_that_the_bases_type_cannot_tell_count(tmp_path: Path, command: Command) -> None:
    """A tune in float32 of a base in bfloat16: gains that moved by less than its unit in the last place."""
    base, tuned = vit(0).bfloat16(), vit(0).bfloat16().float()
    with torch.no_grad():
        for name, parameter in tuned.named_parameters():
            if "layernorm" in name.lower() and name.endswith("weight"):
                parameter.mul_(1.001)
            elif parameter.ndim == 2:
                parameter.add_(torch.outer(parameter[:, 0], parameter[0]))
    checkpoints.save(base, tmp_path / "base")
    checkpoints.save(tuned, tmp_path / "tuned")
    line = ("extract", tmp_path / "tuned", "--base", tmp_path / "base", "--rank", 4, "--output", tmp_path / "adapter")
    assert command(*line).code == 0
    saved = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert any("layernorm" in name for name in saved)


def test_the_base_is_named_as_it_can_be_found(tuned: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """PEFT expands no variable."""
    monkeypatch.setenv("PLACE", str(tuned))
    line = ("extract", tuned / "tuned", "--base", "$PLACE/base", "--rank", 3, "--output", tuned / "adapter")
    assert command(*line).code == 0
    config = json.loads((tuned / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(tuned / "base")


def test_a_head_for_other_classes_comes_along(tmp_path: Path, command: Command) -> None:
    """An image classifier that was tuned for other classes than its base: the adapter is the model."""
    models = {name: vit(seed, num_labels=count) for seed, (name, count) in enumerate({"base": 5, "tuned": 3}.items())}
    body = {name: x for name, x in models["base"].state_dict().items() if not name.startswith("classifier")}
    models["tuned"].load_state_dict(body, strict=False)
    with torch.no_grad():
        for name, layer in models["tuned"].named_modules():
            if isinstance(layer, torch.nn.Linear) and name != "classifier":
                layer.weight += torch.outer(layer.weight[:, 0], layer.weight[0])
    for name, model in models.items():
        checkpoints.save(model, tmp_path / name)
    line = ("extract", tmp_path / "tuned", "--base", tmp_path / "base", "--rank", 4, "--output", tmp_path / "adapter")
    assert command(*line).code == 0
    found = checkpoints.load(tmp_path / "adapter")
    assert found.config.num_labels == 3
    for name, tensor in models["tuned"].state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], tensor, rtol=1e-5, atol=1e-5)


def test_a_lower_rank_says_how_much_it_captures(tuned: Path, command: Command) -> None:
    outcome = command("extract", tuned / "tuned", "--base", tuned / "base", "--rank", 1, "--output", tuned / "adapter")
    assert outcome.code == 0
    assert "100.0%" not in outcome.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("tuned", "--base", "base", "--rank", "0"), "rank is 0; expected at least 1"),
        (("base", "--base", "base"), "is .*base itself; expected a model that differs"),
        (("timm_a", "--base", "base"), "is a timm checkpoint; expected a transformers folder"),
        (("a", "--base", "base"), "base is a llama model, and not the base model of a ViTForImageClassification"),
        (("tuned",), "base"),
        (
            ("longer", "--base", "base"),
            r"longer has 33 rows of .*, and .*base has 30, .* resize_token_embeddings\(33\)",
        ),
        (
            ("tuned", "--base", "wider"),
            r"tuned and .*wider have different sizes \(hidden_size: \d+ and \d+.*expected --base",
        ),
        (("normed", "--base", "base"), "in no matrix .*, but in model.layers.0.input_layernorm and 1 more"),
    ],
)
def test_what_does_not_fit_is_refused(
    tuned: Path, ckpts: Path, command: Command, words: tuple[str, ...], told: str
) -> None:
    places = {"tuned": tuned / "tuned", "base": tuned / "base", "timm_a": ckpts / "timm_a", "a": ckpts / "a"}
    config = LlamaConfig.from_pretrained(tuned / "base")
    checkpoints.save(LlamaForCausalLM(config.__class__(**{**config.to_dict(), "hidden_size": 24})), tuned / "wider")
    places["wider"] = tuned / "wider"
    for name in ("longer", "normed"):
        model = LlamaForCausalLM.from_pretrained(tuned / "base")
        if name == "longer":
            model.resize_token_embeddings(33, mean_resizing=False)
        else:
            model.model.layers[0].input_layernorm.weight.data += 1
            model.model.norm.weight.data += 1
        checkpoints.save(model, tuned / name)
        places[name] = tuned / name
    outcome = command("extract", *(places.get(word, word) for word in words), "--output", tuned / "out")
    assert outcome.code == 2
    assert re.search(told, outcome.err), outcome.err
    assert outcome.err.count("\n") == 1
    assert not (tuned / "out").exists()
