"""Models of one type that compute differently by their configs are told of, whatever is left at its default."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config

from fusionlab import checkpoints
from fusionlab.checkpoints.files import CONFIG, read_json
from fusionlab.commands.other_settings import tell_other_settings
from fusionlab.merging import find_method
from fusionlab.streaming import may_stream, open_models
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
    assert told.endswith("; the merge computes as one of them, as its config.json says.\n")
    tell_other_settings(["one", "other"], is_merged=False)
    assert "each twin keeps its own" in capsys.readouterr().err
    checkpoints.save(llama(3, intermediate_size=32), folders / "wide")
    tell_other_settings(["one", "wide", "gone"])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"position_embedding_type": "absolute"},  # which transformers 4 wrote and 5 has not any more
        {"_attn_implementation_autoset": True},
        {"unsloth_version": "2025.1", "unsloth_fixed": True},
        {"sentence_transformers": {"version": "5.0.0"}},
        {
            "tokenizer_class": "BertTokenizer",
            "auto_map": {"AutoModel": "a.Model"},
            "prefix": "",
            "use_bfloat16": True,
        },
        {"hidden_dropout_prob": 0.3, "initializer_range": 0.1, "classifier_dropout": 0.2},
        {"num_hidden_layers": 3},
    ],
)
def test_nothing_is_said_of_what_changes_no_function(
    changes: dict[str, Any], ckpts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As other versions and programs write it beside, or of training alone; such models are merged a part at a time."""
    shutil.copytree(ckpts / "bert_a", tmp_path / "b")
    (tmp_path / "b" / CONFIG).write_text(json.dumps(read_json(ckpts / "bert_a" / CONFIG) | changes))
    tell_other_settings([str(ckpts / "bert_a"), str(tmp_path / "b")])
    assert capsys.readouterr().err == ""
    if "num_hidden_layers" not in changes:
        found = open_models([str(ckpts / "bert_a"), str(tmp_path / "b")], None, None)
        assert may_stream([model for model in found.values() if model is not None], None, find_method("simple"))


def test_lists_that_follow_from_the_number_of_layers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One of the same length is told of, by its name alone where it is long."""
    kinds = ["full_attention", "sliding_attention"]
    made = {"short": [kinds[0]] * 2, "long": [kinds[0]] * 6, "mixed": kinds * 3}
    for name, layer_types in made.items():
        config = Qwen2Config(**{**SIZES, "num_hidden_layers": len(layer_types)}, layer_types=layer_types)
        config.save_pretrained(tmp_path / name)
    paths = {name: str(tmp_path / name) for name in made}
    tell_other_settings([paths["long"], paths["short"]])
    assert capsys.readouterr().err == ""
    tell_other_settings([paths["long"], paths["mixed"]], ["a", "b"])
    assert "of b and a differ in layer_types;" in capsys.readouterr().err


def test_a_merge_says_so(folders: Path, command: Command) -> None:
    outcome = command("merge", "one", "other", "--output", "merged")
    assert outcome.code == 0
    assert "differ in hidden_act" in outcome.err
