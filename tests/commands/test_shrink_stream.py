"""`fusionlab shrink` of large folders a part at a time: what it writes is what it writes of models in memory."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import fusionlab
from fusionlab.commands import shrink_stream
from tests.commands.conftest import Command
from tests.growing.families import CASES, Case, bert, gpt2, gpt_oss, llama, t5, vit
from tests.growing.test_shrinking import REFUSED
from tests.parts import one_in
from tests.streaming.folders import read
from tests.symmetry.models import randomize

QUERIES = {"num_attention_heads": 12, "num_key_value_heads": 3, "head_dim": 4}
WIDER = re.compile(r"norm|ln_|gate\.weight|router")
FAMILIES = {name: CASES[name] for name in ("llama", "gpt2-untied", "mixtral", "vit-everything")} | {
    "llama-queries": Case(llama, {**QUERIES, "hidden_size": 24, "num_hidden_layers": 3}, {"head_dim": 4}),
    "gpt-oss": Case(gpt_oss, {"num_local_experts": 5, "intermediate_size": 26, "rms_norm_eps": 1e-4}),
    "t5": Case(t5, {"num_heads": 3, "d_ff": 30, "num_layers": 3}),
    "gpt2 --untie": Case(gpt2, {"n_embd": 24, "n_head": 3, "n_layer": 3}),
    "bert": Case(bert, {"intermediate_size": 31}),
}


def saved(folder: Path, case: Case, dtype: torch.dtype = torch.float64, shard: str = "1GB") -> tuple[Path, Path]:
    """The folders of a large model and of a smaller one."""
    large: Any = randomize(case.build(**case.larger), 0).to(dtype)
    large.save_pretrained(folder / "large", max_shard_size=shard)
    fusionlab.save(case.build(**case.smaller), folder / "small")
    return folder / "large", folder / "small"


class Both:
    """The command, for a model in memory and a part at a time."""

    def __init__(self, folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.command, self.monkeypatch = folder, command, monkeypatch

    def __call__(self, large: Path, small: Path, *options: str) -> list[dict[str, Any]]:
        """What is told."""
        told = []
        for kind, least in (("memory", 2**60), ("parts", 0)):
            self.monkeypatch.setattr(shrink_stream, "IN_MEMORY", least)
            output = self.folder / kind
            outcome = self.command("shrink", large, "--like", small, "--output", output, "--json", *options)
            told.append({"code": outcome.code, "err": outcome.err} | json.loads(outcome.out or "{}"))
        assert [one.pop("output", None) is None for one in told] == [one["code"] != 0 for one in told]
        return told

    def texts(self, name: str) -> list[str]:
        """A file of both outputs."""
        return [(self.folder / kind / name).read_text() for kind in ("memory", "parts")]

    def weights(self) -> list[dict[str, torch.Tensor]]:
        """The tensors of both outputs."""
        return [read(self.folder / kind) for kind in ("memory", "parts")]


@pytest.fixture
def both(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> Both:
    return Both(tmp_path, command, monkeypatch)


@pytest.mark.parametrize("name", one_in(4, FAMILIES))
def test_it_is_what_is_shrunk_in_memory(tmp_path: Path, both: Both, name: str) -> None:
    """Weights, config and what is told, in float64: of fewer layers, of stacked experts and of what is untied too."""
    told = both(*saved(tmp_path, FAMILIES[name]), *name.split()[1:])
    assert [one.pop("notes") for one in told] == [[], ["Each part was read, cut and written by itself."]]
    differs = [one.pop("logits_differ_by")["float64"] for one in told]
    assert differs[1] == pytest.approx(differs[0], rel=1e-9)
    assert told[1] == told[0]
    first, second = both.weights()
    assert first.keys() == second.keys()
    for key, tensor in first.items():
        assert second[key].dtype == tensor.dtype
        torch.testing.assert_close(second[key], tensor, rtol=1e-9, atol=1e-9, msg=key)
    configs = map(json.loads, both.texts("config.json"))
    assert next(configs) == next(configs)


def test_files_are_those_of_memory(tmp_path: Path, both: Both) -> None:
    """As many as the large model has, in its type, with what lies beside its weights; the size is that of a config."""
    large, small = saved(tmp_path, CASES["llama"], torch.bfloat16, "6KB")
    (large / "tokenizer.json").write_text("{}")
    both(large, small / "config.json")
    files = [sorted(file.name for file in (tmp_path / kind).iterdir()) for kind in ("memory", "parts")]
    assert files[1] == files[0]
    assert "tokenizer.json" in files[0]
    assert sum(name.startswith("model-0") for name in files[0]) > 1
    for name in ("README.md", "model.safetensors.index.json"):
        texts = both.texts(name)
        assert texts[1] == texts[0]
    assert {tensor.dtype for one in both.weights() for tensor in one.values()} == {torch.bfloat16}


@pytest.mark.parametrize("name", one_in(2, ["llama", "mixtral", "gpt2 --untie"]))
def test_each_parameter_keeps_its_type(tmp_path: Path, both: Both, name: str) -> None:
    """Norms and routers wider than the rest, in memory as by parts; the config names the type of most numbers."""
    large, small = saved(tmp_path, FAMILIES[name], torch.bfloat16)
    stored = load_file(large / "model.safetensors")
    wide = {key: tensor.float() for key, tensor in stored.items() if WIDER.search(key)}
    assert wide
    save_file({**stored, **wide}, large / "model.safetensors", {"format": "pt"})
    told = both(large, small, *name.split()[1:])
    assert [one["code"] for one in told] == [0, 0]
    for found in both.weights():
        for key, tensor in found.items():
            assert tensor.dtype == (torch.float32 if WIDER.search(key) else torch.bfloat16), key
    for text in both.texts("config.json"):
        assert json.loads(text)["dtype"] == "bfloat16"


@pytest.mark.parametrize(("large", "small", "words"), REFUSED.values(), ids=REFUSED)
def test_refusals_are_those_of_memory(
    tmp_path: Path, both: Both, large: nn.Module, small: nn.Module, words: str
) -> None:
    for name, model in (("large", randomize(large, 0)), ("small", small)):
        fusionlab.save(model, tmp_path / name)
    first, second = both(tmp_path / "large", tmp_path / "small")
    assert second == first
    assert (first["code"], words in first["err"]) == (2, True)
    assert {path.name for path in tmp_path.iterdir()} == {"large", "small"}


@pytest.mark.parametrize("options", [(), ("--polish", "3", "--samples", "8")], ids=["cut", "polished"])
def test_a_layout_that_is_not_known_is_held_in_memory(
    options: Sequence[str], tmp_path: Path, both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shrink_stream, "smaller", lambda *_: None)
    large, small = saved(tmp_path, Case(vit, {"num_hidden_layers": 3}), torch.float32)
    told = both(large, small, *options)
    assert told[1]["notes"] == [
        "The whole model was held in memory: the tensors of one are stored in another way than its class has them."
    ]


def test_what_is_polished_is_what_was_cut(tmp_path: Path, both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """The large model teaches from memory; where that does not hold it nothing is begun."""
    large, small = saved(tmp_path, Case(vit, {"num_hidden_layers": 3}), torch.float32)
    told = both(large, small, "--polish", "3", "--samples", "8")
    assert [one["code"] for one in told] == [0, 0]
    first, second = both.weights()
    for key, tensor in first.items():
        torch.testing.assert_close(second[key], tensor, rtol=1e-4, atol=1e-5, msg=key)
    monkeypatch.setattr(shrink_stream, "memory", lambda: 1000)
    refused = both(large, small, "--polish", "3", "--overwrite")[1]
    assert refused["code"] == 2
    assert "expected shrink without --polish" in refused["err"]
