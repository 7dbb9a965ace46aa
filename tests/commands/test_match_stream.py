"""`fusionlab match` of large folders a part at a time: what it writes is what it writes of models in memory."""

import json
import re
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from fusionlab import checkpoints
from fusionlab.commands import match_stream
from fusionlab.streaming.scratch import Scratch
from fusionlab.streaming.stored import Reader
from tests.commands.conftest import Command, Outcome
from tests.parts import one_in
from tests.streaming.folders import read

SIZES: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": {
        "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 50, "max_position_embeddings": 32,
    },
    "BertForSequenceClassification": {
        "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 50,
        "max_position_embeddings": 32, "num_labels": 3,
    },
    "GPT2LMHeadModel": {"n_embd": 24, "n_layer": 2, "n_head": 4, "vocab_size": 50, "n_positions": 32},
    "Qwen2ForCausalLM": {
        "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 50, "max_position_embeddings": 32, "tie_word_embeddings": True,
    },
}  # fmt: skip

EXPERTS = SIZES["LlamaForCausalLM"] | {"num_experts_per_tok": 2}
# Whose files have other names than their modules.
CONVERTED: dict[str, dict[str, Any]] = {
    "MixtralForCausalLM": EXPERTS | {"num_local_experts": 3},
    "Qwen2MoeForCausalLM": EXPERTS
    | {"moe_intermediate_size": 16, "shared_expert_intermediate_size": 20, "num_experts": 3},
    "ViTForImageClassification": {
        "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 8,
        "patch_size": 4, "num_channels": 1, "num_labels": 3,
    },
}  # fmt: skip


def model(name: str, seed: int, dtype: torch.dtype = torch.float32, **changes: Any) -> transformers.PreTrainedModel:
    """A model of random weights, biases and gains among them."""
    cls = getattr(transformers, name)
    torch.manual_seed(seed)
    made = cls(cls.config_class(**(SIZES | CONVERTED).get(name, {}) | changes)).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return made.to(dtype)


def saved(folder: Path, *made: transformers.PreTrainedModel) -> list[Path]:
    """Models in folders ``a``, ``b`` and so on."""
    places = [folder / "abcd"[index] for index in range(len(made))]
    for place, one in zip(places, made, strict=True):
        checkpoints.save(one, place)
    return places


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model counts as large."""
    monkeypatch.setattr(match_stream, "IN_MEMORY", 0)


def both(command: Command, monkeypatch: pytest.MonkeyPatch, output: Path, *arguments: object) -> list[Outcome]:
    """Match in memory into ``memory`` and by parts into ``parts``."""
    outcomes = []
    for name, least in (("memory", 2**60), ("parts", 0)):
        monkeypatch.setattr(match_stream, "IN_MEMORY", least)
        outcomes.append(command("match", *arguments, "--output", output / name))
        assert (outcomes[-1].code, outcomes[-1].err) == (0, "")
    assert "held in memory" not in outcomes[1].out
    return outcomes


def numbers(outcome: Outcome) -> list[float]:
    """The distances in a table."""
    return [float(number) for number in re.findall(r"\d+\.\d{4}\b", outcome.out)]


def same_files(first: Path, second: Path, tolerance: float) -> None:
    """Two outputs hold the same folders, tensors, alignments and configs."""
    names = {path.relative_to(first) for path in first.rglob("*") if path.is_file()}
    assert names == {path.relative_to(second) for path in second.rglob("*") if path.is_file()}
    for name in names:
        if name.suffix == ".safetensors":
            one, other = load_file(first / name), load_file(second / name)
            assert one.keys() == other.keys()
            for key, tensor in one.items():
                assert tensor.dtype == other[key].dtype
                torch.testing.assert_close(other[key], tensor, rtol=tolerance, atol=tolerance, msg=f"{name} {key}")
        if name.name == "config.json":
            assert json.loads((first / name).read_text()) == json.loads((second / name).read_text())
        if name.name.endswith("alignment.safetensors"):
            with safe_open(first / name, "pt") as one, safe_open(second / name, "pt") as other:
                assert one.metadata() == other.metadata()


IN_EVERY_GAUGE = ["--gauge", "folded,biases,balanced", "--rescale", "off"]


WAYS = [
    *((name, IN_EVERY_GAUGE) for name in SIZES), ("LlamaForCausalLM", []), ("GPT2LMHeadModel", []),
    ("BertForSequenceClassification", ["--gauge", "biases,balanced", "--spaces", "ffn"]),
    ("Qwen2ForCausalLM", ["--spaces", "ffn", "--layers", "1"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), one_in(2, WAYS), ids=str)
def test_it_is_what_is_made_in_memory(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, name: str, options: list[str]
) -> None:
    """Twins, alignments, configs and distances are the same to rounding."""
    places = saved(tmp_path, model(name, 0), model(name, 1))
    first, second = both(command, monkeypatch, tmp_path, places[0], "--anchor", places[1], *options)
    same_files(tmp_path / "memory", tmp_path / "parts", 2e-4)
    assert numbers(second) == pytest.approx(numbers(first), abs=2e-4)
    assert len(numbers(first)) == (3 if "--gauge" in options else 2)


def test_several_sources_with_a_base(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a gauge the anchor and the base get twins as well, each in its folder, in the type that was asked for."""
    made = [model("LlamaForCausalLM", seed, torch.float64) for seed in range(4)]
    *sources, anchor, base = saved(tmp_path, *made)
    gauge = ["--gauge", "balanced", "--rescale", "off", "--dtype", "float32"]
    both(command, monkeypatch, tmp_path, *sources, "--anchor", anchor, "--base", base, *gauge)
    same_files(tmp_path / "memory", tmp_path / "parts", 1e-5)
    assert {path.name for path in (tmp_path / "parts").iterdir() if path.is_dir()} == {"a", "b", "c", "d"}
    assert {tensor.dtype for tensor in read(tmp_path / "parts" / "d").values()} == {torch.float32}


@pytest.mark.usefixtures("large")
def test_a_model_of_any_name_gets_its_twin(tmp_path: Path, command: Command) -> None:
    """Also one that is called as what a call keeps for a later one might be."""
    places = saved(tmp_path, *(model("LlamaForCausalLM", seed) for seed in range(3)))
    named = ["--names", "parts", "twins", "anchor"]
    outcome = command("match", *places[:2], "--anchor", places[2], *named, "--output", tmp_path / "out")
    assert (outcome.code, outcome.err) == (0, "")
    assert {path.name for path in (tmp_path / "out").iterdir() if path.is_dir()} == {"parts", "twins"}
    assert read(tmp_path / "out" / "parts").keys() == read(places[0]).keys()


def test_half_precision_and_shards(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A twin in bfloat16 has the shards of its model, and loads in transformers alone with the same function."""
    places = []
    for seed, name in enumerate("ab"):
        made = model("LlamaForCausalLM", seed, torch.bfloat16)
        places.append(tmp_path / name)
        made.save_pretrained(places[-1], max_shard_size="8KB")
    both(command, monkeypatch, tmp_path, places[0], "--anchor", places[1])
    parts = tmp_path / "parts"
    assert {p.name for p in parts.glob("model*")} == {p.name for p in places[0].glob("model*")}
    assert len(list(parts.glob("*.safetensors"))) > 3
    tokens = torch.arange(20).reshape(2, 10)
    before, after = (
        transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)(tokens).logits
        for folder in (places[0], parts)
    )
    assert (before - after).abs().max() < 0.03 * before.abs().max()


def test_tied_embeddings_are_written_once(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPT-2's table is one tensor in the files, moved by no head and counted once."""
    places = saved(tmp_path, model("GPT2LMHeadModel", 0), model("GPT2LMHeadModel", 1))
    outcome = both(command, monkeypatch, tmp_path, places[0], "--anchor", places[1])[1]
    twin = load_file(tmp_path / "parts" / "model.safetensors")
    source, anchor = read(places[0]), read(places[1])
    assert twin.keys() == source.keys()
    torch.testing.assert_close(twin["transformer.wte.weight"], source["transformer.wte.weight"], rtol=0, atol=0)
    before = sum(float((source[n].double() - anchor[n].double()).square().sum()) for n in source) ** 0.5
    assert numbers(outcome)[0] == pytest.approx(before, abs=1e-3)


@pytest.mark.usefixtures("large")
def test_other_matchers_hold_whole_models(tmp_path: Path, command: Command) -> None:
    """They say so."""
    places = saved(tmp_path, model("BertForSequenceClassification", 0), model("BertForSequenceClassification", 1))
    line = ["match", places[0], "--anchor", places[1], "--match", "git-rebasin", "--output", tmp_path / "out"]
    outcome = command(*line)
    assert outcome.code == 0
    assert "Whole models were held in memory: " in outcome.out
    assert "looks at whole models" in outcome.out


@pytest.mark.parametrize("name", CONVERTED)
def test_names_that_differ_in_files_and_modules(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Experts that files hold one by one, and older names: twins are those made in memory, stored as they came."""
    places = saved(tmp_path, model(name, 0), model(name, 1))
    both(command, monkeypatch, tmp_path, places[0], "--anchor", places[1])
    same_files(tmp_path / "memory", tmp_path / "parts", 2e-4)
    before, after = (load_file(place / "model.safetensors") for place in (places[0], tmp_path / "parts"))
    assert {n: (t.shape, t.dtype) for n, t in before.items()} == {n: (t.shape, t.dtype) for n, t in after.items()}
    assert before.keys() != model(name, 0).state_dict().keys()


@pytest.mark.usefixtures("large")
def test_pickles_are_matched_in_memory(tmp_path: Path, command: Command) -> None:
    """A folder whose weights are no safetensors is read as a model."""
    source, *_ = saved(tmp_path / "pickled", model("LlamaForCausalLM", 0))
    torch.save(load_file(source / "model.safetensors"), source / "pytorch_model.bin")
    (source / "model.safetensors").unlink()
    other = saved(tmp_path / "whole", model("LlamaForCausalLM", 1))[0]
    outcome = command("match", source, "--anchor", other, "--output", tmp_path / "out")
    assert outcome.code == 0
    assert "is stored in another way than a folder of safetensors" in outcome.out


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("damage", ["nan", "shape", "class"])
def test_bad_models_are_refused(tmp_path: Path, command: Command, damage: str) -> None:
    """One sentence, exit code 2, and nothing written."""
    places = saved(tmp_path, model("LlamaForCausalLM", 0), model("LlamaForCausalLM", 1))
    name = "model.layers.1.mlp.up_proj.weight"
    tensors = read(places[1])
    if damage == "nan":
        tensors[name][3, 4] = float("nan")
        save_file(tensors, places[1] / "model.safetensors", metadata={"format": "pt"})
        said = f"parameter {name} holds 1 value of 960 that are NaN"
    elif damage == "shape":
        tensors[name] = tensors[name][:5].clone()
        save_file(tensors, places[1] / "model.safetensors", metadata={"format": "pt"})
        said = f"parameter {name} has shape (5, 24)"
    else:
        places[1] = saved(tmp_path / "other", model("BertForSequenceClassification", 1))[0]
        said = "expected end models of one architecture"
    outcome = command("match", places[0], "--anchor", places[1], "--output", tmp_path / "out")
    assert outcome.code == 2
    assert said in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("large")
def test_a_wrong_alignment_is_refused(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes the function of the model that runs a module at a time is noticed, and nothing is written."""
    apply = match_stream.Moved.__call__

    def wrong(self: Any, name: str) -> Tensor:
        found = apply(self, name)
        return found * 1.001 if name.endswith("o_proj.weight") else found

    monkeypatch.setattr(match_stream.Moved, "__call__", wrong)
    places = saved(tmp_path, model("LlamaForCausalLM", 0), model("LlamaForCausalLM", 1))
    outcome = command("match", places[0], "--anchor", places[1], "--output", tmp_path / "out")
    assert outcome.code == 2
    assert "matching changed the model's function" in outcome.err
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("options", [[], ["--match", "weights", "--start", "known", "--sweeps", "2"]])
def test_a_few_parts_are_held(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    """Of what is read or moved, no more than some parts are ever in memory together, of a model of 12 layers."""
    sizes = {"num_hidden_layers": 12, "hidden_size": 32, "intermediate_size": 128}
    places = saved(tmp_path, *(model("LlamaForCausalLM", seed, **sizes) for seed in range(2)))
    # Parts of one layer: units of 12,288 numbers in each model; four times that is allowed for in `_size`.
    monkeypatch.setattr("fusionlab.streaming.twins.MOST", 2 * 4 * 3 * 32 * 128)
    whole = sum(tensor.numel() for tensor in read(places[0]).values())
    held = most = 0
    plain, changed = Reader.read, Scratch.changed

    def counted(found: Tensor) -> Tensor:
        nonlocal held, most
        count = found.numel()
        held += count
        most = max(most, held)
        weakref.finalize(found.untyped_storage(), drop, count)
        return found

    def drop(count: int) -> None:
        nonlocal held
        held -= count

    monkeypatch.setattr(Reader, "read", lambda *given: counted(plain(*given)))
    monkeypatch.setattr(
        Scratch, "changed", lambda self, state, names, make: changed(self, state, names, lambda n: counted(make(n)))
    )
    outcome = command("match", places[0], "--anchor", places[1], *options, "--output", tmp_path / "out")
    assert (outcome.code, outcome.err) == (0, "")
    assert 0 < most < 0.4 * 2 * whole
