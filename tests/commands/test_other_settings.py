"""Models of one type that compute differently by their configs are told of, whatever is left at its default."""

import json
from pathlib import Path

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from fusionlab import checkpoints
from fusionlab.checkpoints.files import CONFIG, read_json
from fusionlab.commands.other_settings import tell_other_settings
from tests.commands.conftest import Command
from tests.symmetry.models import randomize

SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 20}


def llama(seed: int, **changes: object) -> LlamaForCausalLM:
    return randomize(LlamaForCausalLM(LlamaConfig(**{**SIZES, **changes})), seed).float()  # type: ignore[return-value]


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three Llamas: of the second the activation is another, the third says one value of the defaults less."""
    checkpoints.save(llama(0), tmp_path / "one")
    checkpoints.save(llama(1, hidden_act="gelu", rope_theta=500.0), tmp_path / "other")
    checkpoints.save(llama(2), tmp_path / "short")
    config = read_json(tmp_path / "short" / CONFIG)
    del config["mlp_bias"]
    (tmp_path / "short" / CONFIG).write_text(json.dumps(config))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_settings_that_differ(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With both values; sizes, and models of other types, are passed over."""
    tell_other_settings(["one", "short"])
    assert capsys.readouterr().err == ""
    tell_other_settings(["one", "other"], ["a", "b"])
    told = capsys.readouterr().err
    assert told.startswith("The configs of b and a differ in hidden_act ('gelu', 'silu'), rope_parameters.rope_theta (")
    assert told.endswith("; the merge computes as a does.\n")
    tell_other_settings(["one", "other"], is_merged=False)
    assert "each twin keeps its own" in capsys.readouterr().err
    checkpoints.save(llama(3, intermediate_size=32), folders / "wide")
    tell_other_settings(["one", "wide", "gone"])
    assert capsys.readouterr().err == ""


def test_a_merge_says_so(folders: Path, command: Command) -> None:
    outcome = command("merge", "one", "other", "--output", "merged")
    assert outcome.code == 0
    assert "differ in hidden_act" in outcome.err
