"""Damaged LoRA adapters: their configs, their factors, and what stands in place of them."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.robustness import raw_bytes
from tests.robustness.cases import OUTPUT, Case, Place, any_json, edit_json, kind, nested
from tests.robustness.damaged_pickles import Reduced

ADAPTER, BASE = "adapter", "bert_b"
LAYERS = [f"bert.encoder.layer.0.attention.self.{name}" for name in ("query", "value")]
PREFIX = "base_model.model."


def _adapter(place: Place, change: Callable[[dict[str, Tensor]], object] = lambda tensors: None) -> Path:
    """An adapter of a text classifier in the working folder, its tensors changed before they are written."""
    place.copy(BASE)
    width = json.loads((place.work / BASE / "config.json").read_text())["hidden_size"]
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for layer in LAYERS:
        tensors[f"{PREFIX}{layer}.lora_A.weight"] = torch.randn(2, width, generator=generator)
        tensors[f"{PREFIX}{layer}.lora_B.weight"] = torch.randn(width, 2, generator=generator)
    change(tensors)
    folder = place.work / ADAPTER
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "task_type": "SEQ_CLS", "r": 2, "lora_alpha": 4, "base_model_name_or_path": BASE}
    (folder / "adapter_config.json").write_text(json.dumps(config | {"alpha_pattern": {"query": 3}}))
    return folder


def _over_adapter(place: Place, must_refuse: bool = False) -> Case:
    lines = [
        ["merge", ADAPTER, BASE],
        ["merge", BASE, ADAPTER],
        ["match", ADAPTER, "--anchor", BASE],
        ["inspect", ADAPTER],
    ]
    line = place.draw.choice(lines)
    return Case([*line, *(["--output", OUTPUT] if line[0] != "inspect" else [])], None, must_refuse)


@kind
def adapter_config(place: Place) -> Case:
    """Values of another type, other kinds of adapters, bases that lead outside or nowhere, deep nesting, raw bytes."""
    path = _adapter(place) / "adapter_config.json"
    what = place.draw.randrange(4)
    if what == 0:
        raw_bytes.damage(place.draw, path)
        return _over_adapter(place)
    if what == 1:
        path.write_text(nested(100_000, '{"peft_type":', "}"))
        return _over_adapter(place, must_refuse=True)
    if what == 2:
        edit_json(path, lambda content: content.update({place.draw.choice(sorted(content)): any_json(place.draw)}))
        return _over_adapter(place)
    refused: list[dict[str, Any]] = [
        {"peft_type": "IA3"}, {"base_model_name_or_path": "../outside"}, {"base_model_name_or_path": "/dev/zero"},
        {"base_model_name_or_path": ADAPTER}, {"base_model_name_or_path": "no/model"}, {"lora_alpha": float("inf")},
        {"alpha_pattern": {"(x+x+)+y" * 9: 1}}, {"alpha_pattern": {"query": "x"}}, {"layer_replication": [[0, 10**9]]},
        {"auto_mapping": {"base_model_class": "Evil", "parent_library": "evil"}, "init_lora_weights": "pissa"},
        {"task_type": "CAUSAL_LM"}, {"use_dora": True}, {"evil_config": {"a": 1}},
    ]  # fmt: skip
    edit_json(path, lambda content: content.update(place.draw.choice(refused)))
    return _over_adapter(place, must_refuse=True)


@kind
def adapter_weights(place: Place) -> Case:
    """Factors that are missing, not finite, of other shapes or layers; raw bytes; pickles that would run code."""
    name = f"{PREFIX}{LAYERS[0]}.lora_A.weight"

    def replaced(make: Callable[[Tensor], Tensor]) -> Callable[[dict[str, Tensor]], object]:
        return lambda tensors: tensors.update({name: make(tensors[name])})

    changes: list[Callable[[dict[str, Tensor]], object]] = [
        lambda tensors: tensors.pop(name),
        lambda tensors: tensors.update({name.replace(".0.", ".7."): tensors.pop(name)}),
        lambda tensors: tensors.update({name.replace("lora_A", "lora_X"): torch.ones(1)}),
        lambda tensors: tensors.update({f"{PREFIX}classifier.weight": torch.ones(1, 1)}),
        lambda tensors: tensors.update({f"{PREFIX}../../x": torch.ones(1)}),
        replaced(lambda x: x * float("nan")), replaced(lambda x: x[:1].clone()), replaced(lambda x: x[:, :1].clone()),
        replaced(lambda x: x[0].clone()), replaced(lambda x: x.int()), replaced(lambda x: x[:0].clone()),
        replaced(lambda x: x[..., None].expand(-1, -1, 3).contiguous()),
    ]  # fmt: skip
    what = place.draw.randrange(4)
    if what == 0:
        raw_bytes.damage(place.draw, _adapter(place) / "adapter_model.safetensors")
        return _over_adapter(place)
    if what == 1:
        folder = _adapter(place)
        (folder / "adapter_model.safetensors").unlink()
        torch.save({name: Reduced(os.mkdir, str(place.canary))}, folder / "adapter_model.bin")
        return _over_adapter(place, must_refuse=True)
    _adapter(place, place.draw.choice(changes))
    return _over_adapter(place, must_refuse=True)
