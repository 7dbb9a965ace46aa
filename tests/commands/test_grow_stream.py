"""`fusionlab grow` of large folders a part at a time: what it writes is what it writes of models in memory."""

import json
from pathlib import Path

import pytest
import torch

import fusionlab
from fusionlab.commands import grow_stream
from tests.commands.conftest import Command
from tests.growing.families import CASES, Case, llama, t5, vit
from tests.streaming.folders import read
from tests.symmetry.models import randomize

TIED = {"tie_word_embeddings": True}
FAMILIES = {name: CASES[name] for name in ("llama", "gpt2-tied", "gpt2-untied-on-the-way", "mixtral")} | {
    "llama-tied": Case(llama, {**CASES["llama"].larger, **TIED, "rms_norm_eps": 1e-4}, TIED),
    # Heads as wide as before, which leaves less to try.
    "t5": Case(t5, {"d_model": 20, "num_heads": 3, "d_ff": 30, "num_layers": 3}),
    "vit": CASES["vit-everything"],
    "bert": CASES["bert-multiple"],
}


def saved(folder: Path, case: Case, dtype: torch.dtype = torch.float64) -> tuple[Path, Path]:
    """The folders of a small model and of a larger one."""
    small = randomize(case.build(**case.smaller), 0).to(dtype)
    fusionlab.save(small, folder / "small")
    fusionlab.save(case.build(**case.larger), folder / "large")
    return folder / "small", folder / "large"


@pytest.mark.parametrize("name", FAMILIES)
def test_it_is_what_is_grown_in_memory(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Weights, config and what is told, in float64; tied and stacked parameters are written as in memory."""
    small, large = saved(tmp_path, FAMILIES[name])
    told = []
    for kind, least in (("memory", 2**60), ("parts", 0)):
        monkeypatch.setattr(grow_stream, "IN_MEMORY", least)
        outcome = command("grow", small, "--like", large, "--output", tmp_path / kind, "--json")
        assert (outcome.code, outcome.err) == (0, "")
        told.append(json.loads(outcome.out))
    notes = told[0].pop("notes")
    assert len(notes) == (name == "llama-tied")
    assert told[1].pop("notes") == [*notes, "Each part was read, grown and written by itself."]
    for one in told:
        assert one.pop("logits_differ_by")["float64"] < 1e-9
        one.pop("output")
    assert told[1] == told[0]
    first, second = read(tmp_path / "memory"), read(tmp_path / "parts")
    assert first.keys() == second.keys()
    for key, tensor in first.items():
        assert second[key].dtype == tensor.dtype
        torch.testing.assert_close(second[key], tensor, rtol=1e-12, atol=1e-12, msg=key)
    configs = [json.loads((tmp_path / kind / "config.json").read_text()) for kind in ("memory", "parts")]
    assert configs[1] == configs[0]


@pytest.mark.parametrize("options", [("--fill",), ()], ids=["filled", "in another layout"])
def test_what_needs_memory_says_so(
    options: tuple[str, ...], tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models that are filled, and those whose files hold a parameter in a place of its own."""
    monkeypatch.setattr(grow_stream, "IN_MEMORY", 0)
    if not options:
        monkeypatch.setattr(grow_stream, "larger", lambda *_: None)
    small, large = saved(tmp_path, Case(vit, {"num_hidden_layers": 3}))
    outcome = command("grow", small, "--like", large, "--output", tmp_path / "grown", *options)
    assert (outcome.code, outcome.err) == (0, "")
    assert "Whole models were held in memory: " in outcome.out


def test_what_cannot_be_grown_is_one_sentence_and_nothing_is_written(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grow_stream, "IN_MEMORY", 0)
    small, large = saved(tmp_path, Case(vit, {"hidden_act": "relu", "num_hidden_layers": 3}))
    for config in (large, large / "config.json"):
        outcome = command("grow", small, "--like", config, "--output", tmp_path / "grown")
        assert outcome.code == 2
        assert "the configs differ in num_hidden_layers (2, 3), hidden_act (gelu, relu)" in outcome.err
    assert not (tmp_path / "grown").exists()
