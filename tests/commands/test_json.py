"""`--json`: results of a command as one document on the standard output, and nothing else."""

import json
from pathlib import Path

import pytest

from tests.commands.conftest import Command
from tests.commands.fused import rows, value
from tests.commands.test_lora import family

__all__ = ["family"]


def test_match(ckpts: Path, tmp_path: Path, command: Command) -> None:
    outcome = command("match", ckpts / "a", "--anchor", ckpts / "b", "--output", tmp_path / "twin", "--json")
    found = json.loads(outcome.out)
    ((model),) = found["models"]
    assert (found["anchor"], model["model"], found["output"]) == ("b", "a", str(tmp_path / "twin"))
    assert model["distance"]["matched"] < model["distance"]["as_given"]
    assert "json" not in (tmp_path / "twin" / "fusionlab.yaml").read_text()


@pytest.mark.parametrize("method", ["simple", "pcb"])
def test_merge(ckpts: Path, tmp_path: Path, command: Command, method: str) -> None:
    """Of files piece by piece, and of models."""
    options = ["--method", method, *(["--base", ckpts / "middle"] if method == "pcb" else [])]
    outcome = command("merge", ckpts / "a", ckpts / "b", *options, "--output", tmp_path / "out", "--json")
    found = json.loads(outcome.out)
    assert (found["method"], [one["model"] for one in found["models"]]) == (method, ["a", "b"])
    assert all(one["weight"] == 0.5 and one["distance"] > 0 for one in found["models"])


def test_merge_as_an_adapter(family: Path, command: Command) -> None:
    options = ("--base", family / "base", "--as", "lora", "--rank", 4, "--output", family / "json", "--json")
    found = json.loads(command("merge", family / "one", family / "two", *options).out)
    assert (found["method"], found["rank"], found["weights"]) == ("simple", 4, {"one": 0.5, "two": 0.5})
    assert all(0 < share <= 1 for share in found["captured"].values())


def test_barrier_and_fuse(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """The same barrier in both; the rows of fuse are those of its folder, and a bad input is told as ever."""
    measured = ("--data", "Digits", "--points", "3", "--json")
    line = json.loads(command("barrier", ckpts / "a", ckpts / "b", "--match", "none", *measured).out)["lines"][0]
    options = ("--ckpts", ckpts / "a", ckpts / "b", "--match", "none", "--output", tmp_path / "out")
    found = json.loads(command("fuse", *options, *measured).out)
    assert found["rows"] == rows(tmp_path / "out")
    assert line["barrier"] == pytest.approx(value(found["rows"], metric="barrier", matching="none"), rel=1e-6)
    assert found["notes"][0].startswith("These are models trained apart")
    refused = command("fuse", *options, *measured)
    assert (refused.code, refused.out) == (2, "")
