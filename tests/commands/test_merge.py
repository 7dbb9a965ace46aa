"""`fusionlab merge` writes the weighted mean as an ordinary checkpoint."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

import fusionlab
from fusionlab import checkpoints
from fusionlab.commands import merge_output
from tests.commands.conftest import Command
from tests.commands.small import randomized, weights


def mean(first: Tensor, second: Tensor, weight: float) -> np.ndarray:
    """A weighted mean of two tensors, in float64."""
    return weight * first.double().numpy() + (1 - weight) * second.double().numpy()


@pytest.mark.parametrize(("kind", "given", "weight"), [("", [], 0.5), ("timm_", ["1", "3"], 0.25)])
def test_weighted_mean(
    ckpts: Path, tmp_path: Path, command: Command, kind: str, given: list[str], weight: float
) -> None:
    """Every parameter is the weighted mean of the inputs', weights scaled to sum to one; the table tells them."""
    paths = [ckpts / f"{kind}{name}" for name in "ab"]
    option = ["--weights", *given] if given else []
    outcome = command("merge", *paths, "--output", tmp_path / "merged", *option)
    assert (outcome.code, outcome.err) == (0, "")
    first, second, merged = map(weights, (*paths, tmp_path / "merged"))
    assert merged.keys() == first.keys()
    for name, tensor in merged.items():
        np.testing.assert_allclose(tensor.numpy(), mean(first[name], second[name], weight), rtol=0, atol=1e-6)
    assert f"{weight:.3f}" in outcome.out
    assert f"{1 - weight:.3f}" in outcome.out


def test_side_files_of_the_first_are_copied(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """The preprocessor comes along, byte by byte."""
    assert command("merge", ckpts / "a", ckpts / "b", "--output", tmp_path / "merged").code == 0
    name = "preprocessor_config.json"
    assert (tmp_path / "merged" / name).read_bytes() == (ckpts / "a" / name).read_bytes()


def test_bfloat16_stays(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """The mean of bfloat16 checkpoints is the float64 mean rounded once, in bfloat16."""
    paths = [ckpts / "half_a", ckpts / "half_b"]
    assert command("merge", *paths, "--output", tmp_path / "merged", "--weights", "0.3", "0.7").code == 0
    first, second, merged = map(weights, (*paths, tmp_path / "merged"))
    for name, tensor in merged.items():
        assert tensor.dtype == torch.bfloat16
        exact = torch.from_numpy(mean(first[name], second[name], 0.3))
        nearest = exact.to(torch.bfloat16).double()
        # Where the mean lies half way, the sum's own rounding in float32 may decide.
        assert ((tensor.double() - exact).abs() <= (nearest - exact).abs() + 1e-7).all()


def test_lightning_files(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """Two .ckpt files become a .ckpt file with the mean in it, and a plain folder with a card beside it."""
    paths = [ckpts / f"lightning_{name}.ckpt" for name in "ab"]
    outcome = command("merge", *paths, "--output", tmp_path / "merged.ckpt")
    assert (outcome.code, outcome.err) == (0, "")
    assert f"a plain folder, with its card: {tmp_path / 'merged'}" in outcome.out
    first, second, merged = (checkpoints.load(p).state_dict() for p in (*paths, tmp_path / "merged.ckpt"))
    for name, tensor in merged.items():
        np.testing.assert_allclose(tensor.numpy(), mean(first[name], second[name], 0.5), rtol=0, atol=1e-6)
    plain = checkpoints.read(tmp_path / "merged")
    assert plain.format == "transformers"
    assert all(torch.equal(tensor, merged[name]) for name, tensor in plain.model.state_dict().items())
    assert "lightning_a" in (tmp_path / "merged" / "README.md").read_text()
    assert "lightning_b.ckpt" in (tmp_path / "merged" / "fusionlab.yaml").read_text()


def test_lightning_files_as_a_plain_folder(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """Without the ending there is the folder alone, which transformers reads; another ending is refused."""
    paths = [ckpts / f"lightning_{name}.ckpt" for name in "ab"]
    assert command("merge", *paths, "--output", tmp_path / "both.ckpt").code == 0
    outcome = command("merge", *paths, "--output", tmp_path / "merged")
    assert (outcome.code, outcome.err) == (0, "")
    assert weights(tmp_path / "merged").keys() == weights(tmp_path / "both").keys()
    for name, tensor in weights(tmp_path / "both").items():
        torch.testing.assert_close(weights(tmp_path / "merged")[name], tensor, rtol=1e-6, atol=1e-6)
    assert "lightning_a" in (tmp_path / "merged" / "README.md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["both", "both.ckpt", "merged"]
    outcome = command("merge", *paths, "--output", tmp_path / "merged.pt")
    assert (outcome.code, "expected an output that ends in .ckpt" in outcome.err) == (2, True)


def test_a_folder_that_is_in_the_way_of_lightning_files(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """It is refused before any work, and replaced where that is asked for."""
    paths = [ckpts / f"lightning_{name}.ckpt" for name in "ab"]
    (tmp_path / "merged").mkdir()
    (tmp_path / "merged" / "mine.txt").write_text("x")
    line = ("merge", *paths, "--output", tmp_path / "merged.ckpt")
    outcome = command(*line)
    assert (outcome.code, f"{tmp_path / 'merged'} exists" in outcome.err) == (2, True)
    assert not (tmp_path / "merged.ckpt").exists()
    assert command(*line, "--overwrite").code == 0
    assert not (tmp_path / "merged" / "mine.txt").exists()
    assert (tmp_path / "merged.ckpt").is_file()


def test_side_files_beside_a_lightning_file(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """Where a config stands beside it, the preprocessor comes along; else that folder holds other things."""
    for name in ("described", "bare"):
        for model in "ab":
            place = tmp_path / name / model
            place.mkdir(parents=True)
            shutil.copy(ckpts / f"lightning_{model}.ckpt", place / "last.ckpt")
            (place / "preprocessor_config.json").write_text("{}")
            if name == "described":
                shutil.copy(ckpts / model / "config.json", place)
        paths = [tmp_path / name / model / "last.ckpt" for model in "ab"]
        assert command("merge", *paths, "--output", tmp_path / f"merged_{name}.ckpt").code == 0
    assert (tmp_path / "merged_described" / "preprocessor_config.json").is_file()
    assert not (tmp_path / "merged_bare" / "preprocessor_config.json").exists()


def test_overwrite_replaces_the_whole_folder(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """Nothing of the old output is left."""
    (tmp_path / "merged").mkdir()
    (tmp_path / "merged" / "old.txt").write_text("x")
    arguments = ("merge", ckpts / "a", ckpts / "b", "--output", tmp_path / "merged")
    assert command(*arguments, "--overwrite").code == 0
    assert not (tmp_path / "merged" / "old.txt").exists()
    assert (tmp_path / "merged" / "model.safetensors").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["merged"]


@pytest.mark.parametrize(
    ("method", "given", "sentence"),
    [
        ("slerp", "{t: nan}", "t is 'nan'; expected a finite number or null"),
        ("slerp", "{t: .nan}", "t is nan; expected a finite number or null"),
        ("ties", "{density: [0.5, 2]}", "density of model 1 is 2; expected a number above 0, at most 1"),
        (
            "ties",
            "{density: '0.5,0.3'}",
            "expected a finite number, or a list of one for each model, such as [0.5, 0.3]",
        ),
        ("karcher", "{iterations: 1.5}", "iterations is 1.5; expected a whole number"),
        ("[slerp, karcher]", "{slerp: 3}", "hyperparameters of 'slerp' are 3; expected names and values"),
        ("[slerp, karcher]", "{slerp: {t: [1]}}", "t is [1]; expected a finite number or null"),
    ],
)
def test_hyperparameters_of_another_type(
    ckpts: Path, tmp_path: Path, command: Command, method: str, given: str, sentence: str
) -> None:
    """One sentence, exit code 2 and nothing written."""
    out = tmp_path / "merged"
    main = "fuse" if method.startswith("[") else "merge"
    models = ["--ckpts", ckpts / "a", ckpts / "b"] if main == "fuse" else [ckpts / "a", ckpts / "b"]
    outcome = command(main, *models, "--output", out, "--method", method, "--hyperparameters", given)
    assert outcome.code == 2
    assert sentence in outcome.err
    assert "Traceback" not in outcome.err
    assert not out.exists()


def test_factors_and_weights_by_parameter(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """On the command line as in Python; a pattern that matches nothing is a sentence, and nothing is written."""
    given = {"lambda_": {"*attention*": 0.5, "*": 2.0}, "layer_weights": {"*.0.*": [0.9, 0.1]}}
    call = ("merge", ckpts / "a", ckpts / "b", "--base", ckpts / "b", "--method", "task_arithmetic")
    outcome = command(*call, "--output", tmp_path / "merged", "--hyperparameters", json.dumps(given))
    assert (outcome.code, outcome.err) == (0, "")
    a, b = (fusionlab.load(ckpts / name) for name in "ab")
    expected = fusionlab.merge([a, b], "task_arithmetic", base=b, **given)
    for name, tensor in fusionlab.load(tmp_path / "merged").state_dict().items():
        torch.testing.assert_close(tensor, expected.state_dict()[name], rtol=1e-5, atol=1e-6)
    odd = ("--hyperparameters.lambda_", '{"*atention*": 0.5}')
    outcome = command(*call, "--output", tmp_path / "odd", *odd)
    assert outcome.code == 2
    assert "lambda_ has the pattern '*atention*', which matches no parameter" in outcome.err
    assert not (tmp_path / "odd").exists()


def llama(folder: Path, seed: int, shard: str = "1GB", **changes: Any) -> Path:
    """A tied Llama of transformers, saved as it saves itself."""
    fields: dict[str, Any] = {
        "vocab_size": 30, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
        "tie_word_embeddings": True,
    }  # fmt: skip
    model = randomized(LlamaForCausalLM(LlamaConfig(**(fields | changes))), seed)
    model.save_pretrained(folder, max_shard_size=shard)
    return folder


@pytest.mark.parametrize("method", ["ties", "dare", "karcher", "simple"])
def test_a_tied_model_in_shards(tmp_path: Path, command: Command, method: str) -> None:
    """Read by transformers, the merge is tied as its models are, in shards as they are, and is the merge in memory."""
    paths = [llama(tmp_path / name, seed, "4KB") for seed, name in enumerate(("base", "a", "b"))]
    base = ["--base", paths[0]] if method in ("ties", "dare") else []
    outcome = command("merge", *paths[1:], *base, "--method", method, "--output", tmp_path / "merged")
    assert (outcome.code, outcome.err) == (0, "")
    merged = LlamaForCausalLM.from_pretrained(tmp_path / "merged")
    assert merged.lm_head.weight is merged.model.embed_tokens.weight
    models = [LlamaForCausalLM.from_pretrained(path) for path in paths]
    expected = fusionlab.merge(models[1:], method, base=models[0] if base else None)
    for name, tensor in expected.state_dict().items():
        torch.testing.assert_close(merged.state_dict()[name], tensor, rtol=1e-5, atol=1e-6)
    files = [sorted(file.name for file in path.glob("model*")) for path in (paths[1], tmp_path / "merged")]
    assert files[0] == files[1]
    assert len(files[0]) > 3
    # What is tied is one parameter, as `parameters` has it.
    pairs = zip(models[1].parameters(), expected.parameters(), strict=True)
    squares = sum(float((own - other).double().square().sum()) for own, other in pairs)
    assert f"{squares**0.5:.4f}" in outcome.out


def test_shards_of_a_size(tmp_path: Path, command: Command) -> None:
    """Streamed, and of whole models."""
    paths = [llama(tmp_path / name, seed) for seed, name in enumerate("ab")]
    for name, more in {"streamed": [], "whole": ["--probes", "tokens"]}.items():
        out = tmp_path / name
        outcome = command("merge", *paths, *more, "--max-shard-size", "4KB", "--output", out)
        assert (outcome.code, outcome.err) == (0, "")
        assert len(list(out.glob("model-*-of-*.safetensors"))) > 3
        LlamaForCausalLM.from_pretrained(out)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["{}/a", "{}/b", "--max_shard_size", "big"], "max_shard_size is 'big'; expected a size such as 5GB"),
        (["{}/timm_a", "{}/timm_b", "--max_shard_size", "1GB"], "expected a transformers folder to shard"),
        (["{}/lightning_a.ckpt", "{}/lightning_b.ckpt", "--max_shard_size", "1GB"], "expected a transformers folder"),
    ],
)
def test_shards_that_cannot_be(
    ckpts: Path, tmp_path: Path, command: Command, arguments: list[str], sentence: str
) -> None:
    """One sentence, and nothing is written."""
    suffix = ".ckpt" if "lightning" in arguments[0] else ""
    outcome = command("merge", *(a.format(ckpts) for a in arguments), "--output", tmp_path / f"out{suffix}")
    assert outcome.code == 2
    assert sentence in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_a_class_that_no_symmetry_is_known_of(tmp_path: Path, command: Command) -> None:
    """A plain merge needs names and shapes, and neither a description nor a class that transformers knows."""
    for name in ("a", "b"):
        llama(tmp_path / name, ord(name))
        config = tmp_path / name / "config.json"
        config.write_text(config.read_text().replace('"llama"', '"known-to-nobody"'))
    outcome = command("merge", tmp_path / "a", tmp_path / "b", "--output", tmp_path / "merged")
    assert (outcome.code, outcome.err) == (0, "")
    first, second, merged = map(weights, (tmp_path / "a", tmp_path / "b", tmp_path / "merged"))
    for name, tensor in merged.items():
        np.testing.assert_allclose(tensor.numpy(), mean(first[name], second[name], 0.5), rtol=0, atol=1e-6)
    assert (tmp_path / "merged" / "config.json").read_bytes() == (tmp_path / "a" / "config.json").read_bytes()


def test_the_config_names_the_type_that_is_written(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """Models in two types, then one asked for; the sentence about it is the same as ever."""
    line = ("merge", ckpts / "half_a", ckpts / "b", "--output")
    outcome = command(*line, tmp_path / "wide")
    assert "(half_a in bfloat16, b in float32)" in outcome.out
    assert json.loads((tmp_path / "wide" / "config.json").read_text())["dtype"] == "float32"
    outcome = command(*line, tmp_path / "narrow", "--dtype", "float16")
    assert "The merge is written in float16, as asked for" in outcome.out
    assert json.loads((tmp_path / "narrow" / "config.json").read_text())["dtype"] == "float16"
    assert {tensor.dtype for tensor in weights(tmp_path / "narrow").values()} == {torch.float16}


@pytest.mark.parametrize("method", ["simple", "ties"])
def test_only_what_is_needed_is_imported(ckpts: Path, tmp_path: Path, method: str) -> None:
    """Merging files takes neither Lightning nor transformers, nor what data and scores need."""
    program = (
        "import sys; from fusionlab.cli import main; code = main(sys.argv[1:])\n"
        "heavy = {'lightning', 'pytorch_lightning', 'transformers', 'datasets', 'torchmetrics', 'timm', 'sklearn'}\n"
        "heavy |= {'scipy', 'matplotlib', 'pandas', 'huggingface_hub', 'torchvision'}\n"
        "print('imported', sorted(heavy & sys.modules.keys()), file=sys.stderr); sys.exit(code)"
    )
    line = ["merge", str(ckpts / "a"), str(ckpts / "b"), "--method", method, "--output", str(tmp_path / "merged")]
    line += ["--base", str(ckpts / "c"), "--weights", "-0", "1", "--overwrite", "--seed=3"]
    done = subprocess.run([sys.executable, "-c", program, *line], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "imported []\n")
    assert (tmp_path / "merged" / "model.safetensors").exists()


def test_progress_is_shown_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bytes, and nothing of it where standard error is read by a program."""
    with merge_output.progress("merging", 2 * 10**6) as advance:
        advance(10**6)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with merge_output.progress("merging", 2 * 10**6) as advance:
        advance(2 * 10**6)
    assert "2.0/2.0 MB" in capsys.readouterr().err
