"""`fusionlab check` tells what models are, and refuses them by the sentence that `merge` refuses them by."""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from fusionlab import checkpoints
from fusionlab.commands import match_stream
from fusionlab.commands.check_sizes import of_sizes
from fusionlab.merging import methods
from fusionlab.streaming import open_folder
from fusionlab.streaming.twins import MOST
from tests.commands.conftest import Command, Outcome
from tests.commands.small import vit
from tests.commands.test_lora import family
from tests.robustness.sound import tokenizer as word_pieces
from tests.streaming.folders import near, random_tensors, write

__all__ = ["family"]


def found(outcome: Outcome) -> dict[str, Any]:
    """The data that ``--json`` prints."""
    assert (outcome.code, outcome.err) == (0, "")
    return json.loads(outcome.out)


def by_name(ways: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {way["name"]: way for way in ways}


def both_refuse(command: Command, folder: Path, *paths: Path, values: bool = False) -> str:
    """The sentence that check and merge both end with."""
    checked = command("check", *paths, *(["--values"] if values else []))
    merged = command("merge", *paths, "--output", folder / "merged")
    assert (checked.code, merged.code) == (2, 2)
    sentence = checked.err.removeprefix("fusionlab check: error: ")
    assert sentence == merged.err.removeprefix("fusionlab merge: error: ")
    assert sentence.count("\n") == 1
    assert not (folder / "merged").exists()
    return sentence


def changed(source: Path, folder: Path, change: Callable[[dict[str, Tensor]], object]) -> Path:
    """A copy of a folder with other tensors."""
    shutil.copytree(source, folder)
    state = load_file(folder / "model.safetensors")
    change(state)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_two_models(ckpts: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes and types are counted, every method and matching is told of; nothing is written."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**15))
    told = found(command("check", ckpts / "a", ckpts / "half_b", "--json"))
    numbers = sum(parameter.numel() for parameter in vit().parameters())
    sizes = {"a": ("float32", 4), "half_b": ("bfloat16", 2)}
    assert list(told["models"]) == list(sizes)
    for name, (dtype, width) in sizes.items():
        one = told["models"][name]
        assert (one["numbers"], one["bytes"], one["types"]) == (numbers, width * numbers, {dtype: numbers})
        assert (one["architecture"], one["stored"]) == ("ViTForImageClassification", "transformers")
        assert (one["tokens"], one["embeddings"]) == (None, None)
    assert told["size"] == 4 * numbers
    assert told["free"] == 10**15
    assert "The merge is made and written in float32" in told["notes"][0]
    merging, matching = by_name(told["merging"]), by_name(told["matching"])
    assert sorted(merging) == sorted(methods())
    assert (merging["simple"]["possible"], merging["simple"]["held"]) == ("yes", "pieces")
    assert merging["ties"]["possible"] == merging["stock"]["possible"] == "with a base model"
    assert merging["regmean"]["possible"] == "with data"
    for name, possible in {"circuit": "yes", "ot": "yes", "fisher": "with data", "regmean": "with data"}.items():
        assert (merging[name]["possible"], merging[name]["held"]) == (possible, "a part at a time")
    assert "a part at a time with files of statistics" in merging["regmean"]["why"]
    assert (merging["pcb"]["held"], merging["soup"]["held"]) == ("pieces", "whole models")
    # Two models of float32 numbers, the larger; a base model would be beside them.
    least = {name: merging[name]["memory"] / (4 * numbers) for name in ("soup", "regmean_pp", "adamerging")}
    assert least == {"soup": 6.5, "regmean_pp": 12.5, "adamerging": 10.5}
    assert (matching["none"]["possible"], matching["learned"]["possible"]) == ("yes", "with data")
    assert "attention.qk" in matching["paper"]["why"]
    plain = command("check", ckpts / "a", ckpts / "half_b")
    assert plain.code == 0
    assert "These models can be merged." in plain.out
    assert f"{numbers:,}" in plain.out


def test_a_base_and_three_models(ckpts: Path, command: Command) -> None:
    """What needs a base model is possible with one; a method says itself how many models it takes."""
    paths = [ckpts / name for name in "abc"]
    merging = by_name(found(command("check", *paths, "--base", ckpts / "middle", "--json"))["merging"])
    assert merging["ties"]["possible"] == merging["stock"]["possible"] == "yes"
    assert merging["slerp"]["possible"] == "no"
    assert "two" in merging["slerp"]["why"]


def test_formats_that_are_read_whole(ckpts: Path, command: Command) -> None:
    """Lightning files need whole models; folders of timm are merged from their files, and matched whole."""
    told = found(command("check", ckpts / "lightning_a.ckpt", ckpts / "lightning_b.ckpt", "--json"))
    assert {one["stored"] for one in told["models"].values()} == {"lightning"}
    merging = by_name(told["merging"])
    assert merging["simple"]["held"] == "whole models"
    told = found(command("check", ckpts / "timm_a", ckpts / "timm_b", "--json"))
    assert {one["architecture"] for one in told["models"].values()} == {"vit_tiny_patch16_224"}
    merging, matching = by_name(told["merging"]), by_name(told["matching"])
    assert (merging["simple"]["held"], merging["regmean"]["held"]) == ("pieces", "a part at a time")
    assert (matching["paper"]["possible"], matching["paper"]["held"]) == ("yes", "whole models")


def test_adapters(family: Path, command: Command) -> None:
    """Their rank and base model, which methods that need one have; one that names none is refused as by merge."""
    told = found(command("check", family / "one", family / "two", "--json"))
    assert {one["stored"] for one in told["models"].values()} == {f"LoRA adapter of rank 3 on {family / 'base'}"}
    rate, base = told["reading"], (family / "base" / "model.safetensors").stat().st_size
    own = [
        family / name / file for name in ("one", "two") for file in ("adapter_config.json", "adapter_model.safetensors")
    ]
    assert rate["whole"] == 2 * base + sum(file.stat().st_size for file in own)
    assert rate["expected"] == pytest.approx(rate["whole"] * rate["seconds"] / rate["read"])
    merging = by_name(told["merging"])
    assert merging["simple"]["held"] == "pieces"
    assert merging["ties"]["possible"] == merging["stock"]["possible"] == merging["slerp"]["possible"] == "yes"
    config = family / "two" / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"base_model_name_or_path": None}))
    assert "names no base model" in both_refuse(command, family, family / "one", family / "two")


def test_the_disk_that_a_matching_takes_meanwhile(
    ckpts: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of large models whose spaces meet, both in float32 at least; of none that is matched in memory."""
    line = ("check", ckpts / "a", ckpts / "b", "--json")
    assert {way["disk"] for way in found(command(*line))["matching"]} == {0}
    monkeypatch.setattr(match_stream, "IN_MEMORY", 0)
    told = found(command(*line))
    ways = by_name(told["matching"])
    assert ways["weights"]["disk"] >= 4 * 2 * 0.8 * told["models"]["a"]["numbers"]
    assert "of the disk meanwhile" in ways["weights"]["why"]
    assert ways["paper"]["disk"] == ways["git-rebasin"]["disk"] == 0


def test_what_models_of_different_sizes_take(
    ckpts: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merge refuses them; match and fuse grow one first, in memory or a part at a time on the disk."""
    checkpoints.save(vit(3, num_hidden_layers=4, intermediate_size=90), tmp_path / "large")
    shown = []
    for least in (2**60, 0):
        monkeypatch.setattr(match_stream, "IN_MEMORY", least)
        outcome = command("check", ckpts / "a", tmp_path / "large")
        assert outcome.code == 2
        assert "fusionlab fuse grows the smaller one" in outcome.err
        shown.append(" ".join(outcome.out.split()))
    assert "fusionlab fuse and match grow a first, in memory." in shown[0]
    assert "fusionlab fuse and match grow a first, a part at a time: about " in shown[1]
    assert all("Matching, then" in one for one in shown)
    opened = {place.name: open_folder(place.name, place) for place in (ckpts / "a", tmp_path / "large")}
    sizes = of_sizes(opened)
    outcome = command("check", ckpts / "a", tmp_path / "large", "--json")
    told = json.loads(outcome.out)
    assert (outcome.code, list(told["models"]), told["notes"]) == (2, ["a", "large"], [sizes.note])
    assert told["sizes"] == asdict(sizes)
    numbers = sum(tensor.numel() for tensor in load_file(tmp_path / "large" / "model.safetensors").values())
    # Two in float64 while they are matched, with tables of these small spaces, and one in float32 that is written.
    assert (8 * 2 + 4) * 0.8 * numbers < sizes.disk < 80 * numbers
    assert sizes.memory >= 4 * MOST
    ways = {way.name: way for way in sizes.matching}
    assert (ways["paper"].held, ways["git-rebasin"].held) == ("a part at a time", "whole models")
    assert ways["git-rebasin"].memory == 4 * 4 * numbers
    assert of_sizes({"a": opened["a"], "b": opened["a"]}) is None
    for name, changes in {"deep": {"num_hidden_layers": 4}, "wide": {"intermediate_size": 90}}.items():
        checkpoints.save(vit(3, **changes), tmp_path / name)
    several = of_sizes({name: open_folder(name, tmp_path / name) for name in ("deep", "wide")})
    # Both grow, and one lies there twice while it is filled.
    assert several.disk == sizes.disk + 2 * 4 * numbers


def test_one_model_alone(ckpts: Path, command: Command) -> None:
    """Its facts, and no method."""
    told = found(command("check", ckpts / "a", "--json"))
    assert (told["merging"], told["matching"]) == ([], [])
    assert told["models"]["a"]["numbers"] > 0


def test_a_class_that_nobody_knows(tmp_path: Path, command: Command) -> None:
    """Merged piece by piece; nothing that needs a description, and the reason is told."""
    base = random_tensors(0)
    for seed in (1, 2):
        write(tmp_path / str(seed), near(base, seed), files=seed)
    told = found(command("check", tmp_path / "1", tmp_path / "2", "--json"))
    assert [one["stored"] for one in told["models"].values()] == ["transformers", "transformers, 2 shards"]
    merging, matching = by_name(told["merging"]), by_name(told["matching"])
    assert {name for name, way in merging.items() if way["possible"] == "yes"} == {"simple", "slerp", "karcher"}
    assert {name for name, way in matching.items() if way["possible"] != "no"} == {"none"}
    assert "known-to-nobody" in merging["circuit"]["why"]
    assert "known-to-nobody" in matching["paper"]["why"]


def test_models_that_do_not_fit(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """Other classes, and other numbers of labels."""
    assert "BertForSequenceClassification" in both_refuse(command, tmp_path, ckpts / "a", ckpts / "bert_b")
    checkpoints.save(vit(0, num_labels=4), tmp_path / "four")
    assert "classes: 4 and 10" in both_refuse(command, tmp_path, ckpts / "a", tmp_path / "four")


def test_damaged_folders(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """Cut, a pointer of Git LFS, a shard that is missing, an index that names more than the shards hold, integers."""
    cut = shutil.copytree(ckpts / "b", tmp_path / "cut") / "model.safetensors"
    cut.write_bytes(cut.read_bytes()[:-7])
    assert "truncated" in both_refuse(command, tmp_path, ckpts / "a", cut.parent)
    cut.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    assert "git lfs pull" in both_refuse(command, tmp_path, ckpts / "a", cut.parent)
    vit(1).save_pretrained(tmp_path / "shards", max_shard_size="8KB")
    index = tmp_path / "shards" / "model.safetensors.index.json"
    told = json.loads(index.read_text())
    index.write_text(json.dumps(told | {"weight_map": told["weight_map"] | {"vit.more.weight": "model-1.safetensors"}}))
    assert "model-1.safetensors" in both_refuse(command, tmp_path, ckpts / "a", index.parent)
    last = max(told["weight_map"].values())
    index.write_text(json.dumps(told | {"weight_map": told["weight_map"] | {"vit.more.weight": last}}))
    assert "vit.more.weight" in both_refuse(command, tmp_path, ckpts / "a", index.parent)
    integers = {"classifier.weight": torch.ones(10, 16, dtype=torch.int8)}
    whole = changed(ckpts / "b", tmp_path / "whole", lambda state: state.update(integers))
    assert "integers" in both_refuse(command, tmp_path, ckpts / "a", whole)


def test_numbers_are_read_where_asked(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """NaN is found by merging, and by a check of values alone."""
    bad = changed(ckpts / "bert_b", tmp_path / "bad", lambda state: state["classifier.bias"].fill_(torch.nan))
    assert command("check", ckpts / "bert_a", bad).code == 0
    assert "classifier.bias" in both_refuse(command, tmp_path, ckpts / "bert_a", bad, values=True)
    assert command("check", ckpts / "bert_a", ckpts / "bert_b", "--values").code == 0


def test_tokenizers_that_differ(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """The same number of tokens with other numbers is a note: merge does not refuse it."""
    for name, words in (("a", ["one", "two", "three"]), ("b", ["one", "three", "two"])):
        shutil.copytree(ckpts / f"bert_{name}", tmp_path / name)
        word_pieces(words).save_pretrained(tmp_path / name)
    told = found(command("check", tmp_path / "a", tmp_path / "b", "--json"))
    one, other = told["models"].values()
    assert (one["other_tokens"], other["other_tokens"]) == (0, 2)
    assert one["tokens"] == other["tokens"] > 3
    assert one["embeddings"] == 31
    assert any("fusionlab vocab" in note for note in told["notes"])


def test_an_output_that_cannot_be_written(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """Refused as merge refuses it; one that can be is not made."""
    outcome = command("check", ckpts / "a", ckpts / "b", "--output", tmp_path)
    assert outcome.code == 2
    assert "exists already" in outcome.err
    assert command("check", ckpts / "a", ckpts / "b", "--output", tmp_path / "new").code == 0
    assert not (tmp_path / "new").exists()
