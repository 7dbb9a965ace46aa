"""End models of different types: what is written, and that it is said."""

import json
import re
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from fusionlab import checkpoints
from fusionlab.dtypes import types_of
from tests.commands.conftest import Command
from tests.commands.small import digit_scores, weights

SMALL = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 40,
    "max_position_embeddings": 16,
}  # fmt: skip
BOTH = "different types (half_a in bfloat16, b in float32)"


def written(path: Path) -> set[torch.dtype]:
    return {tensor.dtype for tensor in weights(path).values()}


@pytest.mark.parametrize(("dtype", "expected"), [(None, torch.float32), ("float16", torch.float16)])
def test_merge(ckpts: Path, tmp_path: Path, command: Command, dtype: str | None, expected: torch.dtype) -> None:
    """The mean is the exact one, rounded once, to the type that is written."""
    options = [] if dtype is None else ["--dtype", dtype]
    outcome = command("merge", ckpts / "half_a", ckpts / "b", "--output", tmp_path / "out", *options)
    assert (outcome.code, outcome.err) == (0, "")
    assert BOTH in outcome.out
    assert f"written in {dtype or 'float32'}" in outcome.out
    assert written(tmp_path / "out") == {expected}
    first, second, merged = map(weights, (ckpts / "half_a", ckpts / "b", tmp_path / "out"))
    for name, tensor in merged.items():
        exact = (first[name].double() + second[name].double()) / 2
        assert (tensor.double() - exact).abs().max() <= torch.finfo(expected).eps * exact.abs().max()


def test_fuse_measures_what_it_writes(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """Scores of the merge are those of the rounded numbers; the report says the types."""
    options = ["--match", "none", "--points", 0, "--data", "Digits", "--accelerator", "cpu", "--ensemble", "false"]
    arguments = ["--ckpts", ckpts / "half_a", ckpts / "b", "--output", tmp_path / "out", "--dtype", "bfloat16"]
    outcome = command("fuse", *arguments, *options)
    assert (outcome.code, outcome.err) == (0, "")
    assert BOTH in outcome.out
    assert BOTH in (tmp_path / "out" / "report.html").read_text()
    assert written(tmp_path / "out" / "merged") == {torch.bfloat16}
    rows = json.loads((tmp_path / "out" / "results.json").read_text())
    (loss,) = [row["value"] for row in rows if row["method"] == "simple" and row["metric"] == "loss"]
    model = checkpoints.load(tmp_path / "out" / "merged").float()
    assert loss == pytest.approx(digit_scores(model)["loss"], rel=1e-5)


@pytest.mark.parametrize("dtype", [None, "float16"])
def test_match(ckpts: Path, tmp_path: Path, command: Command, dtype: str | None) -> None:
    """Each twin keeps its end model's type, or has the one that is asked for."""
    options = [] if dtype is None else ["--dtype", dtype]
    sources = (ckpts / "half_a", ckpts / "c")
    outcome = command("match", *sources, "--anchor", ckpts / "b", "--output", tmp_path / "out", *options)
    assert (outcome.code, outcome.err) == (0, "")
    assert "different types (half_a in bfloat16, c in float32, b in float32)" in outcome.out
    (rounding,) = re.findall(r"│ c +│ [^│]+│ [^│]+│ [^│]+│ +(\S+) │", outcome.out)
    assert (float(rounding) > 1e-5) == (dtype is not None), "what is told is the twin as it is written"
    for name, own in (("half_a", torch.bfloat16), ("c", torch.float32)):
        assert written(tmp_path / "out" / name) == {own if dtype is None else torch.float16}


def test_nothing_is_said_where_all_agree(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """And the types stay."""
    outcome = command("merge", ckpts / "half_a", ckpts / "half_b", "--output", tmp_path / "out")
    assert "type" not in outcome.out
    assert set(types_of(checkpoints.load(tmp_path / "out")).values()) == {torch.bfloat16}


def test_too_little_space_is_told_before_any_work(
    ckpts: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the commands that merge, match and gather, in MiB."""
    monkeypatch.setattr(
        "fusionlab.atomic.checks.shutil.disk_usage", lambda path: type("Usage", (), {"total": 9, "free": 9})
    )
    monkeypatch.setattr("fusionlab.fusion.Fuser.__init__", lambda *arguments, **keywords: 1 / 0)
    monkeypatch.setattr("fusionlab.commands.match.align_models", lambda *arguments, **keywords: 1 / 0)
    pair = (ckpts / "a", ckpts / "b")
    monkeypatch.setattr("fusionlab.statistics.gather.Gathering.step", lambda *arguments: 1 / 0)
    digits = ("--data", "Digits")
    for line in (
        ("merge", *pair),
        ("fuse", "--ckpts", *pair),
        ("match", pair[0], "--anchor", pair[1]),
        ("gather", pair[0], *digits),
        ("barrier", *pair, *digits),
    ):
        outcome = command(*line, "--output", tmp_path / "out")
        assert outcome.code == 2
        assert "MiB will be written, but the disk of" in outcome.err
        assert "has 0 MiB left" in outcome.err


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two models in bfloat16 with norms in float32."""
    place = tmp_path_factory.mktemp("several")
    for seed in range(2):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(LlamaConfig(**SMALL)).eval()
        for name, tensor in model.named_parameters():
            tensor.data = 1 + torch.randn(tensor.shape) / 9 if "norm" in name else tensor.data.bfloat16()
        model.save_pretrained(place / str(seed))
    return [place / "0", place / "1"]


@pytest.mark.parametrize("way", [[], ["--method", "regmean", "--probes", "tokens", "--samples", "8", "--length", "6"]])
def test_a_merge_of_models_of_several_types(
    several: list[Path], tmp_path: Path, command: Command, way: list[str]
) -> None:
    """Streamed or of whole models: each tensor in its own type, and norms are the mean of what is stored."""
    outcome = command("merge", *several, *way, "--output", tmp_path / "out")
    assert outcome.code == 0, outcome.err
    first, second, merged = map(weights, (*several, tmp_path / "out"))
    for name, tensor in merged.items():
        assert tensor.dtype == first[name].dtype, name
        if "norm" in name:
            exact = (first[name].double() + second[name].double()) / 2
            assert (tensor.double() - exact).abs().max() <= torch.finfo(torch.float32).eps * 2, name


@pytest.mark.parametrize("way", [["--spaces", "ffn"], ["--match", "learned", "--steps", "2"]])
def test_twins_of_models_of_several_types(
    several: list[Path], tmp_path: Path, command: Command, way: list[str]
) -> None:
    """In memory, by weights and by a descent that runs them: norms have the numbers that were stored, in some order."""
    looked_at = ["--probes", "tokens", "--samples", "8", "--length", "6"] if "learned" in way else []
    out = ["--output", tmp_path / "out", "--gauge", "[]"]
    outcome = command("match", several[0], "--anchor", several[1], *way, *looked_at, *out)
    assert outcome.code == 0, outcome.err
    before, twin = map(weights, (several[0], tmp_path / "out"))
    assert {name: tensor.dtype for name, tensor in twin.items()} == {n: tensor.dtype for n, tensor in before.items()}
    for name, tensor in before.items():
        if "norm" in name:
            assert torch.equal(twin[name].sort().values, tensor.sort().values), name
