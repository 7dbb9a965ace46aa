"""Matching of spaces that meet, with both models on the disk: it is what is made in memory."""

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from fusionlab.commands import match_stream
from fusionlab.threads import solvers
from tests.commands.conftest import Command
from tests.commands.test_match_stream import both, model, numbers, same_files, saved
from tests.matching.elsewhere import ELSEWHERE, device
from tests.parts import long
from tests.streaming.folders import read

# Experts that are modules of their own.
SWITCH = "SwitchTransformersForConditionalGeneration"
IN_A_GAUGE = ("--gauge", "folded,biases,balanced", "--rescale", "off")
SIZES: dict[str, Any] = {
    "d_model": 24, "d_kv": 6, "d_ff": 40, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4,
    "num_experts": 3, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1, "expert_capacity": 64,
    "vocab_size": 50, "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("LlamaForCausalLM", []),
        ("BertForSequenceClassification", ["--start", "known", "--gauge", "none", "--relative", "0"]),
    ],
    ids=["rotated and annealed", "permuted"],
)
def test_what_meets_is_matched_where_it_lies(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, name: str, options: list[str]
) -> None:
    """The stream with all other spaces: twins, alignments and distances are those of models in memory, to rounding."""
    places = saved(tmp_path, model(name, 0), model(name, 1))
    line = [places[0], "--anchor", places[1], "--match", "weights", *options]
    first, second = both(command, monkeypatch, tmp_path, *line)
    same_files(tmp_path / "memory", tmp_path / "parts", 2e-4)
    assert numbers(second) == pytest.approx(numbers(first), abs=2e-4)


@pytest.mark.parametrize("memory", [2**40, 1])
def test_numbers_on_the_way_that_do_not_fit_the_disk(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, memory: int
) -> None:
    """Whole models are matched in memory then; where that does not hold them either, the sentence names both."""
    monkeypatch.setattr(match_stream, "IN_MEMORY", 0)
    places = saved(tmp_path, model("LlamaForCausalLM", 0), model("LlamaForCausalLM", 1))
    usage = type(shutil.disk_usage(tmp_path))
    size = sum(tensor.nbytes for tensor in read(places[0]).values())
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(2**40, 0, 2 * size + 2**20 + 5))
    monkeypatch.setattr("fusionlab.commands.match_parts.memory", lambda: memory)
    line = ["match", places[0], "--anchor", places[1], "--match", "weights", "--sweeps", 1]
    outcome = command(*line, "--output", tmp_path / "out")
    if memory > 1:
        assert (outcome.code, outcome.err) == (0, "")
        assert "Whole models were held in memory: a part at a time takes " in outcome.out
    else:
        assert outcome.code == 2
        assert "MiB of them numbers on the way that are removed again" in outcome.err
    assert (tmp_path / "out").exists() == (memory > 1)


def test_parts_are_matched_on_a_device(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products and decompositions run there, files are written from the processor, and the twin is the same."""
    places = saved(tmp_path, model("GPT2LMHeadModel", 0), model("GPT2LMHeadModel", 1))
    monkeypatch.setattr(match_stream, "IN_MEMORY", 0)
    line = ("match", places[0], "--anchor", places[1], "--match", "paper", "--gauge", "biases,balanced", "--output")
    assert command(*line, tmp_path / "processor").code == 0
    monkeypatch.setattr("fusionlab.commands.match.device_of", lambda accelerator: ELSEWHERE)
    # What stands for a device is known to one thread.
    monkeypatch.setattr("fusionlab.streaming.twins.workers", lambda: nullcontext(solvers(1)))
    with device() as calls:
        assert command(*line, tmp_path / "device").code == 0
    same_files(tmp_path / "processor", tmp_path / "device", 1e-5)
    assert calls["_linalg_svd"] > 0
    assert calls["_linalg_eigh"] > 0


@long
@pytest.mark.parametrize("options", [[], ["--match", "weights", *IN_A_GAUGE]], ids=str)
def test_experts_in_lists(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    """They are one tensor to matching, and parameters of their own in the files."""
    places = saved(tmp_path, *(model(SWITCH, seed, **SIZES) for seed in range(2)))
    first, second = both(command, monkeypatch, tmp_path, places[0], "--anchor", places[1], *options)
    same_files(tmp_path / "memory", tmp_path / "parts", 2e-4)
    assert numbers(second) == pytest.approx(numbers(first), abs=2e-4)
