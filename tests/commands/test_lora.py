"""LoRA adapters are end models: every command takes them, and what they make is what their merged models make."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from fusionlab import FusionModule, checkpoints
from fusionlab.commands import match_stream, parsing
from tests.checkpoints.test_wrapped import two_adapters
from tests.commands.conftest import Command

CONFIG = LlamaConfig(
    hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    vocab_size=30, max_position_embeddings=16,
)  # fmt: skip
RANK, ALPHA = 3, 6
LAYERS = [f"model.layers.{i}.self_attn.{name}" for i in range(2) for name in ("q_proj", "v_proj")]


@pytest.fixture
def family(tmp_path: Path) -> Path:
    """A base model, two adapters of it as PEFT stores them, and the models that they are by the definition of LoRA."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    base = LlamaForCausalLM(CONFIG)
    checkpoints.save(base, tmp_path / "base")
    for name in ("one", "two"):
        dense, tensors = {n: x.clone() for n, x in base.state_dict().items()}, {}
        for layer in LAYERS:
            out, into = dense[f"{layer}.weight"].shape
            down, up = torch.randn(RANK, into, generator=generator), torch.randn(out, RANK, generator=generator) / 9
            tensors |= {f"base_model.model.{layer}.lora_{x}.weight": t for x, t in (("A", down), ("B", up))}
            dense[f"{layer}.weight"] += ALPHA / RANK * up @ down
        (tmp_path / name).mkdir()
        save_file(tensors, tmp_path / name / "adapter_model.safetensors")
        config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": ALPHA}
        config |= {"base_model_name_or_path": str(tmp_path / "base")}
        (tmp_path / name / "adapter_config.json").write_text(json.dumps(config))
        model = LlamaForCausalLM(CONFIG)
        model.load_state_dict(dense)
        checkpoints.save(model, tmp_path / f"dense_{name}")
    return tmp_path


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize("method", ["simple", "ties", "task_arithmetic", "slerp", "karcher"])
def test_a_merge_of_adapters_is_the_merge_of_their_models(family: Path, command: Command, method: str) -> None:
    """Methods that need the base model have the one that all adapters name."""
    given = ["--base", family / "base"] if method in ("ties", "task_arithmetic") else []
    for kind, base in (("", []), ("dense_", given)):
        paths = [family / f"{kind}one", family / f"{kind}two"]
        outcome = command("merge", *paths, "--method", method, *base, "--output", family / f"{kind}merged")
        assert (outcome.code, outcome.err) == (0, "")
    found, expected = weights(family / "merged"), weights(family / "dense_merged")
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-6, atol=1e-6)
    assert any(not torch.allclose(tensor, weights(family / "base")[name]) for name, tensor in found.items())
    LlamaForCausalLM.from_pretrained(family / "merged")


@pytest.mark.parametrize(
    "line",
    [
        ("merge", "one", "two"),
        ("merge", "one", "two", "--method", "ties"),
        ("merge", "one", "two", "--as", "lora", "--rank", "6"),
        ("fuse", "--ckpts", "one", "two"),
    ],
    ids=["merged", "with the base that they name", "as an adapter", "fused"],
)
def test_no_whole_model_is_read(
    family: Path, command: Command, monkeypatch: pytest.MonkeyPatch, line: tuple[str, ...]
) -> None:
    """Base tensors are read in pieces, and changed as they are read; an adapter is made of factors."""

    def read_all(*_: object) -> None:
        raise AssertionError("whole models were read")

    monkeypatch.setattr(parsing, "read_all", read_all)
    monkeypatch.setattr(match_stream, "IN_MEMORY", 0)
    paths = [family / word if word in ("one", "two") else word for word in line]
    outcome = command(*paths, "--output", family / "out")
    assert (outcome.code, outcome.err) == (0, "")
    if "lora" in line or "ties" in line:
        return
    found = weights(family / "out" / "merged" if line[0] == "fuse" else family / "out")
    for name, tensor in weights(family / "dense_one").items():
        mean = (tensor + weights(family / "dense_two")[name]) / 2
        torch.testing.assert_close(found[name], mean, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "line",
    [
        ("merge", "one", "two"),
        ("merge", "one", "two", "--as", "lora"),
        ("merge", "one", "two", "--method", "ties", "--as", "lora"),
        ("fuse", "--ckpts", "one", "two"),
        ("match", "one", "--anchor", "two"),
    ],
    ids=["merged", "as an adapter", "as the difference of models", "fused", "matched"],
)
@pytest.mark.parametrize("is_streamed", [True, False], ids=["by parts", "in memory"])
def test_an_adapters_own_tokenizer_comes_first(
    family: Path, command: Command, monkeypatch: pytest.MonkeyPatch, line: tuple[str, ...], is_streamed: bool
) -> None:
    """A tokenizer is taken with all its files or not at all; what describes the adapter is not the model's."""
    monkeypatch.setattr(match_stream, "IN_MEMORY", 0 if is_streamed else 2**60)
    if not is_streamed:
        torch.save(weights(family / "base"), family / "base" / "pytorch_model.bin")
        (family / "base" / "model.safetensors").unlink()
    files = {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}
    for folder, names in (
        ("base", {*files, "special_tokens_map.json", "vocab.txt", "preprocessor_config.json"}),
        ("one", {*files, "config.json", "generation_config.json", "training_args.bin", "modules.json"}),
        ("two", {*files, "added_tokens.json"}),
    ):
        for name in names - {"config.json"} if folder == "base" else names:
            (family / folder / name).write_text(json.dumps({"of": folder}))
    paths = [family / word if word in ("one", "two") else word for word in line]
    outcome = command(*paths, "--output", family / "out")
    assert (outcome.code, outcome.err) == (0, "")
    out = family / "out" / "merged" if line[0] == "fuse" else family / "out"
    told = {
        path.name: json.loads(path.read_text()).get("of")
        for path in out.glob("*")
        if path.suffix in (".json", ".jinja")
    }
    own = dict.fromkeys(files, "one")
    if "lora" in line:
        assert told == {**own, "adapter_config.json": None}
    else:
        assert told.items() >= {**own, "preprocessor_config.json": "base", "config.json": None}.items()
        assert not {"special_tokens_map.json", "adapter_config.json", "modules.json"} & told.keys()
        assert not {"vocab.txt", "training_args.bin"} & {path.name for path in out.iterdir()}


@pytest.mark.parametrize("name", ["mixtral", "gpt_oss"])
def test_adapters_on_experts_in_a_stack(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Merged and written as an adapter again without a whole model in memory: the mean of what PEFT makes of each."""
    base, first, second = two_adapters(tmp_path, name)
    other = second.state_dict()
    mean = {key: (tensor + other[key]) / 2 for key, tensor in first.state_dict().items()}
    given = [tmp_path / "one" / "adapter", tmp_path / "two" / "adapter", "--base", base]
    monkeypatch.setattr(parsing, "read_all", None)
    for line in (["--as", "lora", "--rank", 8, "--output", tmp_path / "lora"], ["--output", tmp_path / "whole"]):
        outcome = command("merge", *given, *line)
        assert (outcome.code, outcome.err) == (0, "")
    for made in ("lora", "whole"):
        torch.testing.assert_close(checkpoints.load(tmp_path / made).state_dict(), mean, rtol=1e-5, atol=1e-5)
    assert "of experts on" in " ".join(command("check", *given).out.split())


def test_an_adapter_beside_a_whole_model(family: Path, command: Command) -> None:
    assert command("merge", family / "one", family / "dense_two", "--output", family / "merged").code == 0
    mean = {n: (x + weights(family / "dense_two")[n]) / 2 for n, x in weights(family / "dense_one").items()}
    torch.testing.assert_close(weights(family / "merged"), mean, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("matching", ["auto", "none"])
def test_a_large_adapter_beside_a_large_whole_model(
    family: Path, command: Command, monkeypatch: pytest.MonkeyPatch, matching: str
) -> None:
    """Fused from files with the base model that is given; what is told and chosen is that of whole models."""
    (family / "base").rename(family / "elsewhere")
    paths = ["--ckpts", family / "one", family / "dense_two", "--base", family / "elsewhere"]
    told = []
    for kind, least in (("memory", 2**60), ("parts", 0)):
        monkeypatch.setattr(match_stream, "IN_MEMORY", least)
        outcome = command("fuse", *paths, "--match", matching, "--json", "--output", family / kind)
        assert (outcome.code, outcome.err) == (0, "")
        told.append(json.loads(outcome.out)["notes"])
    assert told[0][0] == told[1][0]
    assert "never in memory as a whole" in told[1][1]
    found, expected = (weights(family / kind / "merged") for kind in ("parts", "memory"))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "line", [("merge", "one", "two"), ("fuse", "--ckpts", "one", "two"), ("match", "one", "--anchor", "two")]
)
def test_the_base_model_is_asked_for_and_taken(family: Path, command: Command, line: tuple[str, ...]) -> None:
    """Exit code 2 and nothing written where it is not there; ``--base`` says where it is."""
    (family / "base").rename(family / "elsewhere")
    paths = [family / word if word in ("one", "two") else word for word in line]
    outcome = command(*paths, "--output", family / "out")
    assert outcome.code == 2
    assert "names the base model" in outcome.err
    assert not (family / "out").exists()
    outcome = command(*paths, "--base", family / "elsewhere", "--output", family / "out")
    assert (outcome.code, outcome.err) == (0, "")


def test_inspect_shows_the_symmetry_of_the_model(family: Path, command: Command) -> None:
    told = {}
    for name in ("one", "dense_one"):
        outcome = command("inspect", family / name)
        assert outcome.code == 0
        told[name] = outcome.out.replace(str(family / name), "MODEL")
    assert told["one"] == told["dense_one"]
    assert "attention.vo" in told["one"]


def test_adapters_of_one_base_are_not_matched_by_default(family: Path, command: Command) -> None:
    """However far they moved: `fuse` and `FusionModule` say of them what `advise` says."""
    paths = [family / "one", family / "two"]
    outcome = command("fuse", "--ckpts", *paths, "--output", family / "out")
    assert "LoRA adapters of one base" in outcome.out
    assert "nothing was matched" in outcome.out
    choice = FusionModule([str(path) for path in paths]).choice
    assert choice is not None
    assert choice.match == "none"
    mixed = FusionModule([str(paths[0]), str(family / "dense_two")]).choice
    assert mixed is not None
