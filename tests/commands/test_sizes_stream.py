"""`match` and `fuse` of large folders of different sizes a part at a time: they do what they do in memory."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from fusionlab.commands import match_stream, sizes_stream
from fusionlab.streaming import StoredModel, open_folder
from tests.commands.conftest import Command
from tests.commands.test_grow_stream import saved
from tests.commands.test_match_stream import both, numbers, same_files
from tests.growing.families import CASES, Case, vit
from tests.parts import long
from tests.streaming.folders import read

# Heads as wide as before: where a head has directions that nothing lies in, rounding decides how these are turned.
HEADS = Case(vit, {"hidden_size": 24, "num_attention_heads": 4, "num_labels": 3})


@pytest.mark.parametrize(
    ("case", "source", "options"),
    [(CASES["llama"], "small", ["--match", "weights"]), pytest.param(HEADS, "large", [], marks=long)],
    ids=["to the larger one, in a gauge", "to the smaller one"],
)
def test_match_is_what_it_is_in_memory(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, case: Case, source: str, options: list[str]
) -> None:
    """Twins, that of an anchor that was grown among them, cards, distances and sentences; nothing is left beside."""
    places = {place.name: place for place in saved(tmp_path, case)}
    anchor = places["small" if source == "large" else "large"]
    first, second = both(command, monkeypatch, tmp_path, places[source], "--anchor", anchor, *options)
    same_files(tmp_path / "memory", tmp_path / "parts", 1e-9)
    assert {path.name for path in (tmp_path / "parts").iterdir() if path.is_dir()} == {"small", "large"}
    assert numbers(second) == pytest.approx(numbers(first), abs=2e-4)
    for one in (first, second):
        assert re.search(r"different\s+sizes, so\s+that\s+small \(", one.out)
    cards = [(tmp_path / kind / "small" / "README.md").read_text() for kind in ("memory", "parts")]
    assert cards[0] == cards[1]
    assert {path.name for path in tmp_path.iterdir()} == {"small", "large", "memory", "parts"}


@pytest.mark.parametrize("matching", [pytest.param("weights", marks=long), "none"])
def test_fuse_is_what_it_is_in_memory(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, matching: str
) -> None:
    """Two models of which each is larger in another dimension, filled from each other where they are matched."""
    a, b = saved(tmp_path, Case(vit, {"intermediate_size": 31}, {"num_hidden_layers": 3}))
    told, beside = [], [0]

    def opened(source: str, folder: Path) -> StoredModel | None:
        beside.append(len(list(folder.parent.iterdir())))
        return open_folder(source, folder)

    monkeypatch.setattr(sizes_stream, "open_folder", opened)
    for kind, least in (("memory", 2**60), ("parts", 0)):
        monkeypatch.setattr(match_stream, "IN_MEMORY", least)
        monkeypatch.setattr(sizes_stream, "time", SimpleNamespace(perf_counter=iter([0.0, 5000.0]).__next__))
        line = ["--ckpts", a, b, "--match", matching, "--json", "--output", tmp_path / kind]
        outcome = command("fuse", *line)
        assert (outcome.code, outcome.err) == (0, "")
        told.append(json.loads(outcome.out))
    first, second = (read(tmp_path / kind / "merged") for kind in ("memory", "parts"))
    # What is filled replaces what was grown before.
    assert max(beside) == (2 if matching == "none" else 3)
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        torch.testing.assert_close(second[name], tensor, rtol=0, atol=1e-9, msg=name)
    for file in ("config.json", "README.md"):
        one, other = ((tmp_path / kind / "merged" / file).read_text() for kind in ("memory", "parts"))
        assert one == other
    values = [[row["value"] for row in one["rows"]] for one in told]
    assert values[1] == pytest.approx(values[0], rel=1e-9)
    notes = [[re.sub(r"by (\d+e-1\d|0e\+00)", "", note) for note in one["notes"]] for one in told]
    assert notes[1][:2] == notes[0][:2]
    assert "small (ffn 20 to 31;" in notes[1][1]
    assert "large (layers 2 to 3;" in notes[1][1]
    assert "never in memory as a whole" in notes[1][2]
    words = "growing and merging" if matching == "none" else "growing, matching and merging"
    assert re.search(rf"; {words} took 50\d\d\.\d s\.", notes[1][2])
    assert {path.name for path in tmp_path.iterdir()} == {"small", "large", "memory", "parts"}


@pytest.mark.parametrize("words", [["match"], ["fuse", "--ckpts"]], ids=["match", "fuse"])
def test_what_is_refused_leaves_nothing(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """Numbers that are none are found while the small model is filled; one sentence, and nothing lies beside."""
    monkeypatch.setattr(match_stream, "IN_MEMORY", 0)
    for place in ("match.checkpoints.read", "fuse.parsing.read_all"):
        monkeypatch.setattr(f"fusionlab.commands.{place}", lambda *_: pytest.fail("whole models were read"))
    small, large = saved(tmp_path, HEADS)
    tensors = read(large)
    tensors["classifier.weight"][1, 2] = float("nan")
    save_file(tensors, large / "model.safetensors", metadata={"format": "pt"})
    anchor = ["--anchor", large] if words == ["match"] else [large]
    outcome = command(*words, small, *anchor, "--output", tmp_path / "new" / "out")
    assert outcome.code == 2
    assert "parameter classifier.weight holds 1 value of 72 that are NaN" in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"small", "large"}


def test_what_needs_memory_says_so(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A matching that looks at whole models, before anything is grown, and a call that another one is to go on with."""
    monkeypatch.setattr(match_stream, "IN_MEMORY", 0)
    monkeypatch.setattr(sizes_stream.GrowingFiles, "write", lambda *_: pytest.fail("was grown"))
    small, large = saved(tmp_path, Case(vit, {"num_hidden_layers": 3}))
    line = ["match", small, "--anchor", large, "--output", tmp_path / "out"]
    outcome = command(*line, "--match", "git-rebasin")
    assert (outcome.code, outcome.err) == (0, "")
    assert "looks at whole models" in " ".join(outcome.out.split())
    outcome = command(*line, "--resume", "--overwrite")
    assert outcome.code == 2
    assert "fusionlab grow --fill makes them of one size first" in outcome.err
