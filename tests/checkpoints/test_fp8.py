"""Weights of 8 bits are read as their stored numbers times their scales; other kinds are refused with the way on."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from fusionlab import checkpoints
from fusionlab.checkpoints.fp8 import FP8, Scale, has_scaled
from fusionlab.errors import InputError
from fusionlab.streaming import open_folder
from tests.commands.conftest import Command, command

__all__ = ["command"]
SIZES: dict[str, Any] = {
    "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 50,
}  # fmt: skip
BLOCK = (16, 10)
SCHEMES: dict[str, dict[str, Any]] = {
    "block": {"quant_method": "fp8", "weight_block_size": list(BLOCK), "activation_scheme": "dynamic"},
    "row": {"quant_method": "compressed-tensors", "format": "float-quantized"},
    "tensor": {"quant_method": "compressed-tensors", "format": "float-quantized"},
}
ENDS = {"block": "_scale_inv", "row": "_scale", "tensor": "_scale"}


def quantised(folder: Path, kind: str, seed: int) -> dict[str, Tensor]:
    """A Llama whose linear layers are in 8 bits, written as published ones are; its weights by a direct formula."""
    torch.manual_seed(seed)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).bfloat16()
    checkpoints.save(model, folder)
    written, exact = {}, {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        written[name] = exact[name] = tensor
        if name.endswith("_proj.weight"):
            rows, columns = tensor.shape
            held = {"block": (-(-rows // BLOCK[0]), -(-columns // BLOCK[1])), "row": (rows, 1), "tensor": (1,)}[kind]
            scale = torch.rand(held) + 0.5
            numbers = (tensor.float() * 40).to(FP8)
            dense = torch.empty(rows, columns, dtype=torch.float64)
            for i in range(rows):
                for j in range(columns):
                    at = {"block": (i // BLOCK[0], j // BLOCK[1]), "row": (i, 0), "tensor": (0,)}[kind]
                    dense[i, j] = float(numbers[i, j]) * float(scale[at])
            exact[name] = dense
            written |= {name: numbers, f"{name}{ENDS[kind]}": scale}
            if kind == "tensor":
                written[name.replace("weight", "input_scale")] = torch.ones(1)
    save_file(written, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": SCHEMES[kind]}))
    return exact


def close(found: Tensor, exact: Tensor) -> None:
    """Equal once rounded to bfloat16, but for ties."""
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), exact.double(), rtol=2**-8, atol=0)


@pytest.mark.parametrize("kind", SCHEMES)
def test_numbers_times_scales(tmp_path: Path, kind: str) -> None:
    """As a model and as a folder, by stretches of any length, blocks at the edges included."""
    exact = quantised(tmp_path / "a", kind, 0)
    state = checkpoints.load(tmp_path / "a").state_dict()
    assert state.keys() == exact.keys()
    model = open_folder("a", tmp_path / "a")
    assert model is not None
    assert model.is_scaled
    assert model.tensors.keys() == exact.keys()
    with model.opened() as reader:
        for name, dense in exact.items():
            close(state[name], dense)
            count = dense.numel()
            parts = [reader.read(name, start, min(37, count - start)) for start in range(0, count, 37)]
            assert torch.equal(torch.cat(parts), state[name].flatten())


def test_no_numbers() -> None:
    """A stretch of nothing, and one inside a row."""
    scale = Scale("s", (2, 2), (1, 2))
    scales = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert scale.of(torch.empty(0, dtype=FP8), 3, 3, scales, torch.float32).numel() == 0
    found = scale.of(torch.ones(3).to(FP8), 2, 3, scales, torch.float32)
    assert found.tolist() == [2.0, 3.0, 3.0]


def test_only_what_is_stored_so_is_said_to_be(tmp_path: Path) -> None:
    """Whatever a config says."""
    quantised(tmp_path / "a", "block", 0)
    assert has_scaled(tmp_path / "a")
    state = load_file(tmp_path / "a" / "model.safetensors")
    save_file({name: tensor.float() for name, tensor in state.items()}, tmp_path / "a" / "model.safetensors")
    assert not has_scaled(tmp_path / "a")
    assert not has_scaled(tmp_path)


@pytest.mark.parametrize("method", ["simple", "circuit"])
def test_merges(tmp_path: Path, command: Command, method: str) -> None:
    """Streamed and in memory: the mean of what is read, written as an ordinary model, and said."""
    first, second = (quantised(tmp_path / name, "block", seed) for seed, name in enumerate("ab"))
    out = tmp_path / "out"
    outcome = command("merge", tmp_path / "a", tmp_path / "b", "--method", method, "--output", out)
    assert outcome.code == 0
    assert "is stored in FP8: it is read by dequantising, as bfloat16" in outcome.out + outcome.err
    assert "quantization_config" not in json.loads((out / "config.json").read_text())
    name = "model.layers.1.mlp.up_proj.weight"
    mean = (first[name].bfloat16().double() + second[name].bfloat16().double()) / 2
    close(load_file(out / "model.safetensors")[name], mean)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(out)
    assert loaded.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("scheme", "words"),
    [
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"quant_method": "awq", "bits": 4}, "awq"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "dequantize()"),
        ({"load_in_8bit": True}, "bitsandbytes"),
        ({"quant_method": "compressed-tensors", "format": "pack-quantized"}, "compressed-tensors"),
        ({"bits": 4}, "does not name"),
    ],
)
def test_other_kinds_are_refused(tmp_path: Path, command: Command, scheme: dict[str, Any], words: str) -> None:
    """One sentence with the kind and the way on."""
    for seed, name in enumerate("ab"):
        quantised(tmp_path / name, "tensor", seed)
        config = json.loads((tmp_path / name / "config.json").read_text())
        (tmp_path / name / "config.json").write_text(json.dumps(config | {"quantization_config": scheme}))
    outcome = command("merge", tmp_path / "a", tmp_path / "b", "--output", tmp_path / "out")
    assert outcome.code == 2
    assert "dequantise it first: " in outcome.err
    assert words in outcome.err
    assert not (tmp_path / "out").exists()


def test_gguf_is_refused(tmp_path: Path) -> None:
    """A folder that holds nothing else, and the file itself."""
    quantised(tmp_path / "a", "tensor", 0)
    (tmp_path / "a" / "model.safetensors").rename(tmp_path / "a" / "model-q4.gguf")
    for place in (tmp_path / "a", tmp_path / "a" / "model-q4.gguf"):
        with pytest.raises(InputError, match="gguf_file=FILE"):
            checkpoints.read(place)


@pytest.mark.parametrize(
    ("kind", "scale", "words"),
    [
        ("block", None, "has no scales"),
        ("block", torch.ones(2, 3), r"shape \(2, 3\) for a weight of shape"),
        ("row", torch.ones(7, 1), "one for each row"),
        ("tensor", torch.ones(1, dtype=torch.int32), "has no scales"),
    ],
)
def test_scales_that_do_not_fit(tmp_path: Path, kind: str, scale: Tensor | None, words: str) -> None:
    """Missing, of another shape, and integers; as a folder and as a model."""
    quantised(tmp_path / "a", kind, 0)
    file = tmp_path / "a" / "model.safetensors"
    state = load_file(file)
    name = f"model.layers.0.mlp.up_proj.weight{ENDS[kind]}"
    del state[name]
    save_file(state | ({} if scale is None else {name: scale}), file, {"format": "pt"})
    with pytest.raises(InputError, match=words):
        open_folder("a", tmp_path / "a")
    with pytest.raises(InputError, match=words):
        checkpoints.read(tmp_path / "a")
