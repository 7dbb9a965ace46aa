"""`fusionlab grow` of large folders a part at a time: what it writes is what it writes of models in memory."""

import json
from pathlib import Path

import pytest
import torch

import fusionlab
from fusionlab.commands import grow_stream
from tests.commands.conftest import Command
from tests.growing.families import CASES, Case, bert, gpt2, llama, mixtral, t5, vit
from tests.parts import one_in
from tests.streaming.folders import read
from tests.symmetry.models import randomize
from tests.symmetry.written.registry import is_before

TIED = {"tie_word_embeddings": True}
FAMILIES = {
    "gpt2-tied": CASES["gpt2-tied"],
    "llama-tied": Case(llama, {**CASES["llama"].larger, **TIED, "rms_norm_eps": 1e-4}, TIED),
    # Heads as wide as before, which leaves less to try.
    "t5": Case(t5, {"d_model": 20, "num_heads": 3, "d_ff": 30, "num_layers": 3}),
    "vit": CASES["vit-everything"],
}


# Heads as wide as before: where a head has directions that nothing lies in, rounding decides how these are turned.
FILLED = {
    "llama": CASES["llama"],
    "mixtral": CASES["mixtral"],
    "gpt2-untied-on-the-way": Case(gpt2, {"n_embd": 18, "n_head": 3, "n_layer": 3, "tie_word_embeddings": False}),
    "vit-of-other-labels": Case(vit, {"hidden_size": 24, "num_attention_heads": 4, "num_labels": 7}),
    "bert": Case(bert, {"hidden_size": 24, "intermediate_size": 31, "num_attention_heads": 4}),
}


def saved(folder: Path, case: Case, dtype: torch.dtype = torch.float64) -> tuple[Path, Path]:
    """The folders of a small model and of a larger one."""
    for name, sizes, seed in (("small", case.smaller, 0), ("large", case.larger, 1)):
        fusionlab.save(randomize(case.build(**sizes), seed).to(dtype), folder / name)
    return folder / "small", folder / "large"


@pytest.mark.parametrize(
    ("case", "options"),
    one_in(4, [*((case, []) for case in FAMILIES.values()), *((case, ["--fill"]) for case in FILLED.values())]),
    ids=one_in(4, [*FAMILIES, *(f"{name} filled" for name in FILLED)]),
)
def test_it_is_what_is_grown_in_memory(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, case: Case, options: list[str]
) -> None:
    """Weights, config and what is told, in float64; tied and stacked parameters are written as in memory."""
    small, large = saved(tmp_path, case)
    told = []
    for kind, least in (("memory", 2**60), ("parts", 0)):
        monkeypatch.setattr(grow_stream, "IN_MEMORY", least)
        outcome = command("grow", small, "--like", large, "--output", tmp_path / kind, "--json", *options)
        assert (outcome.code, outcome.err) == (0, "")
        told.append(json.loads(outcome.out))
    notes = told[0].pop("notes")
    assert len(notes) == (case is FAMILIES["llama-tied"])
    assert told[1].pop("notes") == [*notes, "Each part was read, grown and written by itself."]
    for one in told:
        assert one.pop("logits_differ_by")["float64"] < 1e-9
        one.pop("output")
    if is_before("transformers", "5.24"):
        # Angles of positions were products, computed once for all inputs of a pass.
        counts = [one.pop("operations") for one in told]
        assert counts[1] == pytest.approx(counts[0], rel=1e-3)
    assert told[1] == told[0]
    first, second = read(tmp_path / "memory"), read(tmp_path / "parts")
    assert first.keys() == second.keys()
    for key, tensor in first.items():
        assert second[key].dtype == tensor.dtype
        torch.testing.assert_close(second[key], tensor, rtol=0, atol=1e-9 if options else 1e-12, msg=key)
    assert {path.name for path in (tmp_path / "parts").iterdir()} == {p.name for p in (tmp_path / "memory").iterdir()}
    configs = [json.loads((tmp_path / kind / "config.json").read_text()) for kind in ("memory", "parts")]
    assert configs[1] == configs[0]


def test_what_needs_memory_says_so(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models whose files hold a parameter in a place of its own."""
    monkeypatch.setattr(grow_stream, "IN_MEMORY", 0)
    monkeypatch.setattr(grow_stream, "larger", lambda *_: None)
    small, large = saved(tmp_path, Case(vit, {"num_hidden_layers": 3}))
    outcome = command("grow", small, "--like", large, "--output", tmp_path / "grown")
    assert (outcome.code, outcome.err) == (0, "")
    assert "Whole models were held in memory: " in outcome.out


def test_what_other_inputs_tell_of_is_not_filled(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where what was tried is not all that the function depends on, nothing is taken."""
    monkeypatch.setattr(grow_stream, "IN_MEMORY", 0)
    monkeypatch.setattr("fusionlab.growing.filling.UNSEEN", float("inf"))
    small, large = saved(tmp_path, Case(vit, {"num_hidden_layers": 3}))
    for kind, options in (("plain", []), ("filled", ["--fill"])):
        outcome = command("grow", small, "--like", large, "--output", tmp_path / kind, *options)
        assert (outcome.code, outcome.err) == (0, "")
    torch.testing.assert_close(read(tmp_path / "filled"), read(tmp_path / "plain"), rtol=0, atol=1e-12)


def test_what_cannot_be_grown_is_one_sentence_and_nothing_is_written(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grow_stream, "IN_MEMORY", 0)
    small, large = saved(tmp_path, Case(vit, {"hidden_act": "relu", "num_hidden_layers": 3}))
    for config in (large, large / "config.json"):
        outcome = command("grow", small, "--like", config, "--output", tmp_path / "grown")
        assert outcome.code == 2
        assert "the configs differ in num_hidden_layers (2, 3), hidden_act (gelu, relu)" in outcome.err
    windowed = saved(tmp_path / "windowed", Case(mixtral, {"intermediate_size": 24, "sliding_window": 16}))
    outcome = command("grow", windowed[0], "--like", windowed[1], "--output", tmp_path / "grown")
    assert outcome.code == 2
    assert "attention reaches elsewhere in one of both models: the configs differ in sliding_window" in outcome.err
    outcome = command("grow", small, "--like", large / "config.json", "--output", tmp_path / "grown", "--fill")
    assert outcome.code == 2
    assert "the larger one is a config alone; expected a model" in outcome.err
    assert not (tmp_path / "grown").exists()
