"""Adapters that name experts one by one, as those of transformers 4 do: the same as in each expert's own matrix."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import MixtralConfig, MixtralForCausalLM, PreTrainedModel, Qwen3MoeConfig, Qwen3MoeForCausalLM

from fusionlab import checkpoints
from fusionlab.checkpoints.adapters import read_adapter
from fusionlab.checkpoints.extraction import merged_changes
from fusionlab.errors import InputError
from fusionlab.streaming import open_model
from tests.checkpoints.test_adapters import assert_close
from tests.checkpoints.test_wrapped import SMALL, TWO

CASES: dict[str, tuple[Callable[[], PreTrainedModel], list[str]]] = {
    # The router has another name in the class than in files.
    "mixtral": (
        lambda: MixtralForCausalLM(MixtralConfig(**SMALL, intermediate_size=12, num_local_experts=3)),
        ["w1", "w2", "w3", "block_sparse_moe.gate", "q_proj"],
    ),
    "qwen3_moe": (
        lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(**TWO, moe_intermediate_size=8, num_experts=4, mlp_only_layers=[0])),
        ["gate_proj", "up_proj", "down_proj"],
    ),
}
SCALES = {"lora_alpha": 6, "alpha_pattern": {"w1": 3, "up_proj": 3}, "rank_pattern": {"w2": 1}}


def factors(files: Mapping[str, Tensor], targets: list[str], least: int = 1) -> dict[str, tuple[Tensor, Tensor]]:
    """Random factors for the layers of files that end in a target, of rank 2, and of the least rank for ``w2``."""
    layers = {name.removesuffix(".weight"): tensor for name, tensor in files.items()}
    found = {}
    for layer, weight in layers.items():
        if layer.endswith(tuple(targets)):
            rank = least if layer.endswith(".w2") else 2
            found[layer] = torch.randn(rank, weight.shape[1]) / 4, torch.randn(weight.shape[0], rank) / 4
    return found


def write(folder: Path, base: Path, own: Mapping[str, tuple[Tensor, Tensor]], **other: Any) -> None:
    """An adapter folder as PEFT wrote it beside transformers 4."""
    folder.mkdir(parents=True)
    targets = sorted({layer.rpartition(".")[2] for layer in own})
    config = {"peft_type": "LORA", "r": 2, "task_type": "CAUSAL_LM", "target_modules": targets, **SCALES, **other}
    (folder / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": str(base)}))
    tensors = {f"base_model.model.{layer}.lora_A.weight": down.contiguous() for layer, (down, _) in own.items()}
    tensors |= {f"base_model.model.{layer}.lora_B.weight": up.contiguous() for layer, (_, up) in own.items()}
    save_file(tensors, folder / "adapter_model.safetensors")


def changed(files: Mapping[str, Tensor], own: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    """The tensors of a base model's files with every pair of factors in its own matrix."""
    found = dict(files)
    for layer, (down, up) in own.items():
        alpha = 3 if layer.endswith((".w1", ".up_proj")) else 6
        found[f"{layer}.weight"] = found[f"{layer}.weight"] + alpha / len(down) * up @ down
    return found


def made(folder: Path, name: str, some: int = 1) -> tuple[dict[str, Tensor], dict[str, tuple[Tensor, Tensor]]]:
    """A base model in ``base``; the tensors of its files, and factors for every so many-th of its target layers."""
    build, targets = CASES[name]
    torch.manual_seed(0)
    build().save_pretrained(folder / "base")
    files = load_file(folder / "base" / "model.safetensors")
    own = factors(files, targets)
    return files, dict(list(own.items())[::some])


def dense(folder: Path, files: Mapping[str, Tensor]) -> nn.Module:
    """A model of a base model's config and of other tensors in its files."""
    (folder / "dense").mkdir()
    (folder / "dense" / "config.json").write_text((folder / "base" / "config.json").read_text())
    save_file(dict(files), folder / "dense" / "model.safetensors", metadata={"format": "pt"})
    return checkpoints.load(folder / "dense")


# Of every second layer some experts have one matrix changed of two that are one in the class.
@pytest.mark.parametrize(("name", "some"), [("mixtral", 1), ("mixtral", 2), ("qwen3_moe", 1)])
def test_each_pair_of_factors_is_of_one_experts_matrix(tmp_path: Path, name: str, some: int) -> None:
    """In memory and where the files lie, tensor by tensor."""
    files, own = made(tmp_path, name, some)
    write(tmp_path / "adapter", tmp_path / "base", own)
    expected = changed(files, own)
    assert_close(checkpoints.load(tmp_path / "adapter"), dense(tmp_path, expected))
    stored = open_model(str(tmp_path / "adapter"))
    assert stored is not None
    with stored.opened() as reader:
        for key, tensor in expected.items():
            read = reader.read(key, 0, tensor.numel()).reshape(tensor.shape)
            torch.testing.assert_close(read, tensor, rtol=1e-6, atol=1e-6, msg=key)


def test_peft_merges_the_same(tmp_path: Path) -> None:
    """Where it converts such adapters itself."""
    files, _ = made(tmp_path, "mixtral")
    own = factors(files, ["w1", "w2", "w3", "q_proj"], least=2)
    write(tmp_path / "adapter", tmp_path / "base", own, alpha_pattern={}, rank_pattern={})
    loaded: Any = peft.PeftModel.from_pretrained(checkpoints.load(tmp_path / "base"), tmp_path / "adapter")
    assert_close(checkpoints.load(tmp_path / "adapter"), loaded.merge_and_unload())


def test_a_mean_of_such_adapters_is_made_of_factors(tmp_path: Path) -> None:
    """Of the rank of both together it is the mean of the models."""
    files, own = made(tmp_path, "mixtral")
    own = {layer: pair for layer, pair in own.items() if layer.endswith((".w2", "q_proj"))}
    other = factors(files, ["w2", "q_proj"])
    for place, pairs in (("one", own), ("two", other)):
        write(tmp_path / place, tmp_path / "base", pairs)
    adapters = [read_adapter(tmp_path / place) for place in ("one", "two")]
    found = merged_changes(adapters, (0.25, 0.75), checkpoints.load(tmp_path / "base"), 4)
    assert found is not None
    assert set(found.captured) == {"model.layers.0.mlp.experts.down_proj", "model.layers.0.self_attn.q_proj"}
    assert min(found.captured.values()) == pytest.approx(1, abs=1e-6)
    before = checkpoints.load(tmp_path / "base").state_dict()["model.layers.0.mlp.experts.down_proj"]
    mean = [
        0.25 * changed(files, own)[key] + 0.75 * changed(files, other)[key]
        for key in files
        if key.endswith("w2.weight")
    ]
    merged = found.stacks["model.layers.0.mlp.experts.down_proj"].changed(before)
    torch.testing.assert_close(merged, torch.stack(mean), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", ["shape", "lengths", "expert"])
def test_what_does_not_fit_is_one_sentence(tmp_path: Path, case: str) -> None:
    _, own = made(tmp_path, "mixtral")
    layer = "model.layers.0.block_sparse_moe.experts.1.w1"
    down, up = own[layer]
    if case == "expert":
        write(tmp_path / "adapter", tmp_path / "base", {layer.replace(".1.", ".7."): (down, up)})
        told = r"changes .*experts\.7\.w1\.weight, which .*base does not have; expected the adapter's own base model"
    elif case == "shape":
        write(tmp_path / "adapter", tmp_path / "base", {layer: (down[:, 1:], up)})
        told = r"factors of shapes \(12, 2\) and \(2, 15\) for .*experts\.1\.w1\.weight, of shape \(12, 16\) in"
    else:
        write(tmp_path / "adapter", tmp_path / "base", {layer: (down, up)})
        file = tmp_path / "adapter" / "adapter_model.safetensors"
        save_file({**load_file(file), f"base_model.model.{layer}.lora_magnitude_vector": torch.ones(12)}, file)
        told = r"more than two factors for .*experts\.1\.w1\.weight, one of the experts, in .*base; expected"
    with pytest.raises(InputError, match=told):
        checkpoints.load(tmp_path / "adapter")
