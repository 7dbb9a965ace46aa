"""Classifiers with other labels are merged by the places of these, and that is said."""

import json
from pathlib import Path

import pytest

from fusionlab.commands.other_labels import tell_other_labels
from tests.commands.conftest import Command


def named(folder: Path, *labels: str) -> str:
    """Write a config with these labels, beside what lies there."""
    folder.mkdir(exist_ok=True)
    file = folder / "config.json"
    before = json.loads(file.read_text()) if file.exists() else {}
    places = {str(place): label for place, label in enumerate(labels)}
    file.write_text(
        json.dumps({**before, "id2label": places, "label2id": {label: int(p) for p, label in places.items()}})
    )
    return str(folder)


def test_other_names_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not the same ones, nor numbers, nor another count of them, which is refused elsewhere."""
    first = named(tmp_path / "first", "negative", "positive")
    other = named(tmp_path / "other", "bad", "good")
    rest = [
        named(tmp_path / "same", "negative", "positive"),
        named(tmp_path / "turned", "positive", "negative"),
        named(tmp_path / "numbers", "LABEL_0", "LABEL_1"),
        named(tmp_path / "more", "a", "b", "c"),
        str(tmp_path / "missing"),
    ]
    tell_other_labels([named(tmp_path / "unnamed", "0", "1"), first, *rest])
    assert capsys.readouterr().err == ""
    tell_other_labels([first, *rest, other])
    told = " ".join(capsys.readouterr().err.split())
    assert told.startswith(f"The labels of {other} (bad, good) and {first} (negative, positive) have other names")
    assert told.count("labels of") == 1


def test_commands_tell_it(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """Before they make one head of two; not where each head is kept."""
    for name in "ab":
        (tmp_path / name).mkdir()
        for file in (ckpts / f"bert_{name}").iterdir():
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
    count = len(json.loads((tmp_path / "a" / "config.json").read_text())["id2label"])
    a, b = (named(tmp_path / name, *(f"{name}{place}" for place in range(count))) for name in "ab")
    fuse = ("fuse", "--ckpts", a, b, "--match", "none", "--output", str(tmp_path / "f"))
    for argv in (
        ("merge", a, b, "--output", str(tmp_path / "m"), "--names", "one", "two"),
        (*fuse, "--names", "one", "two"),
    ):
        result = command(*argv)
        assert result.code == 0, result.err
        assert "The labels of two (b0, b1" in " ".join(result.err.split()), argv
    result = command(*fuse, "--heads", "union", "--overwrite", "--names", "one", "two")
    assert result.code == 0, result.err
    assert "have other names" not in result.err
