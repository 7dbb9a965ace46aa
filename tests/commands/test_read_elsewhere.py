"""What commands write is read by transformers, timm, peft and sentence-transformers in a process without fusionlab."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from fusionlab import checkpoints
from tests.checkpoints.embedding_models import embedding_model
from tests.commands.conftest import Command
from tests.commands.small import randomized, timm_vit

CONFIG = LlamaConfig(
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=30,
    max_position_embeddings=16,
)


def llama(seed: int) -> nn.Module:
    return randomized(LlamaForCausalLM(CONFIG), seed)


def mean_of(first: nn.Module, second: nn.Module) -> nn.Module:
    """The first model with the mean of both models' parameters, which are added up here."""
    other = second.state_dict()
    state = {name: (tensor.double() + other[name].double()) / 2 for name, tensor in first.state_dict().items()}
    first.load_state_dict(state)
    return first


def adapter(folder: Path, base: Path, seed: int) -> nn.Module:
    """An adapter as PEFT writes it; the base model that PEFT has merged it into."""
    chosen = LoraConfig(r=2, lora_alpha=3, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM")
    adapted = get_peft_model(LlamaForCausalLM.from_pretrained(base), chosen)
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.copy_(0.3 * torch.randn_like(parameter))
    adapted.save_pretrained(folder)
    merged: nn.Module = adapted.merge_and_unload()
    return merged.eval()


def test_a_merge_a_twin_and_an_adapter_in_a_process_of_their_own(tmp_path: Path, command: Command) -> None:
    """Outputs there are those of the mean computed here, of the model that was matched, or of the model itself."""
    pytest.importorskip("sentence_transformers")
    place = {name: tmp_path / name for name in ("a", "b", "timm_a", "timm_b", "one", "two", "text_a", "text_b")}
    for seed, name in enumerate("ab"):
        checkpoints.save(llama(seed), place[name])
        checkpoints.save(timm_vit(seed), place[f"timm_{name}"])
    mixed = mean_of(*(adapter(place[name], place["a"], seed) for seed, name in enumerate(("one", "two"))))
    embedding_model(place["text_a"], 0)
    shutil.copytree(place["text_a"], place["text_b"])
    out = {name: tmp_path / f"made_{name}" for name in ("merge", "twin", "timm", "lora", "text")}
    for line in (
        ("merge", place["a"], place["b"], "--max-shard-size", "20KB", "--output", out["merge"]),
        ("match", place["a"], "--anchor", place["b"], "--match", "paper", "--output", out["twin"]),
        ("merge", place["timm_a"], place["timm_b"], "--output", out["timm"]),
        ("merge", place["one"], place["two"], "--as", "lora", "--rank", "4", "--output", out["lora"]),
        ("merge", place["text_a"], place["text_b"], "--output", out["text"]),
    ):
        outcome = command(*line)
        assert (outcome.code, outcome.err) == (0, "")
    jobs = [
        {"kind": "transformers", "folder": str(out["merge"])},
        {"kind": "transformers", "folder": str(out["twin"])},
        {"kind": "timm", "folder": str(out["timm"])},
        {"kind": "peft", "folder": str(out["lora"]), "base": str(place["a"])},
        {"kind": "sentence-transformers", "folder": str(out["text"])},
        {"kind": "sentence-transformers", "folder": str(place["text_a"])},
    ]
    program = [sys.executable, str(Path(__file__).with_name("read_elsewhere.py")), json.dumps(jobs)]
    done = subprocess.run(program, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    merge, twin, of_timm, lora, text, same_text = map(torch.tensor, json.loads(done.stdout))
    ids, image = torch.arange(12).reshape(2, 6), torch.linspace(-1, 1, 128).reshape(2, 1, 8, 8)
    with torch.no_grad():
        expected = [
            mean_of(llama(0), llama(1))(ids).logits,
            llama(0)(ids).logits,
            mean_of(timm_vit(0), timm_vit(1))(image),
            mixed(ids).logits,
        ]
    for found, own in zip((merge, twin, of_timm, lora), expected, strict=True):
        torch.testing.assert_close(found.float(), own.flatten(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(text, same_text, rtol=1e-5, atol=1e-5)
