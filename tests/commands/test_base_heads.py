"""Commands with a base model under the head of its pretraining, or none."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel

from tests.commands.conftest import Command

SIZES: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}


@pytest.fixture
def family(tmp_path: Path) -> dict[str, str]:
    """Two classifiers, and what they come from: bare, and with the head of a masked language model."""
    torch.manual_seed(0)
    base = BertModel(BertConfig(vocab_size=40, **SIZES))
    masked = BertForMaskedLM(BertConfig(vocab_size=40, **SIZES))
    masked.bert.load_state_dict(base.state_dict(), strict=False)
    models: dict[str, Any] = {"bare": base, "masked": masked}
    base.save_pretrained(tmp_path / "bare")
    for name in ("a", "b"):
        model = models[name] = BertForSequenceClassification.from_pretrained(tmp_path / "bare", num_labels=3)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.02 * torch.randn(parameter.shape))
    for name, model in models.items():
        model.save_pretrained(tmp_path / name)
    return {name: str(tmp_path / name) for name in models}


@pytest.mark.parametrize("base", ["bare", "masked"])
def test_merge_and_fuse_take_any_head(family: dict[str, str], base: str, tmp_path: Path, command: Command) -> None:
    """Written and told alike; the head, which the base lacks, is the mean of the fine-tunes'."""
    output, fused = tmp_path / "merged", tmp_path / "fused"
    ends, origin = (family["a"], family["b"]), load_file(Path(family["bare"]) / "model.safetensors")
    how = ["--method", "task_arithmetic", "--hyperparameters.lambda_", "2", "--base", family[base]]
    outcome = command("merge", *ends, *how, "--output", output)
    assert outcome.code == 0
    assert "The base model has no" in outcome.out + outcome.err
    first, second, merged = (load_file(Path(folder) / "model.safetensors") for folder in (*ends, output))
    weight, name = "classifier.weight", "encoder.layer.0.output.dense.weight"
    assert torch.allclose(merged[weight], (first[weight] + second[weight]) / 2)
    wanted = first[f"bert.{name}"] + second[f"bert.{name}"] - origin[name]
    assert torch.allclose(merged[f"bert.{name}"], wanted, atol=1e-6)
    assert command("fuse", "--ckpts", *ends, "--match", "none", *how, "--output", fused).code == 0
    again = load_file(fused / "merged" / "model.safetensors")
    assert all(torch.allclose(again[one], merged[one], atol=1e-6) for one in merged)


def test_check_takes_any_head(family: dict[str, str], command: Command) -> None:
    """A bare base is no obstacle to a merge or a matching, and another model is one in a sentence."""
    outcome = command("check", family["a"], family["b"], "--base", family["masked"])
    assert outcome.code == 0
    assert "These models can be merged" in outcome.out + outcome.err
    assert "expected end models of one architecture" not in outcome.out


def test_another_model_is_refused(family: dict[str, str], tmp_path: Path, command: Command) -> None:
    """In a sentence, with nothing written."""
    BertModel(BertConfig(vocab_size=40, **{**SIZES, "num_hidden_layers": 2})).save_pretrained(tmp_path / "deep")
    output = tmp_path / "merged"
    outcome = command(
        "merge", family["a"], family["b"], "--method", "ties", "--base", tmp_path / "deep", "--output", output
    )
    assert outcome.code == 2
    assert "the base model has another size than its fine-tunes (num_hidden_layers: 2 and 1)" in outcome.err
    assert not output.exists()
