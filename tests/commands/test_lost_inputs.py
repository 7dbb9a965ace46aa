"""No command replaces what it reads, however the output is spelled."""

import shutil
from pathlib import Path

import pytest

from tests.commands.conftest import Command

CASES = [
    ("merge m/a m/b --output m/a", "m/a is the input m/a"),
    ("merge m/a m/b --output m", "m holds the input m/a"),
    ("merge m/a m/b --output m/../m/b/", "is the input m/b"),
    ("merge m/a m/b --base m/c --output link", "link is the input m/c"),
    ("merge files/a.ckpt files/b.ckpt --output files.ckpt", "files holds the input files/a.ckpt"),
    ("merge adapter adapter --output m/c", "m/c is the input m/c"),
    ("merge m/a/model.safetensors m/b/model.safetensors --architecture m/c --output m/c", "m/c is the input m/c"),
    ("match m/a --anchor m/b --output m/b", "m/b is the input m/b"),
    ("fuse --ckpts m/a m/b --output m", "m holds the input m/a"),
    ("fuse --ckpts m/a m/b --data rows.csv --output rows.csv", "rows.csv is the input rows.csv"),
    ("fuse --ckpts m/a m/b --probes data/rows.csv --output data", "data holds the input data/rows.csv"),
    ("grow m/a --like m/b --output m", "m holds the input m/"),
    ("shrink m/a --like m/b --output m/b", "m/b is the input m/b"),
    ("extract m/a --base m/b --output m/b", "m/b is the input m/b"),
    ("gather m/a --data rows.csv --output rows.csv", "rows.csv is the input rows.csv"),
    ("inspect m/a --picture m/a/model.safetensors", "model.safetensors lies in the input m/a"),
    ("barrier m/a m/b --data Digits --output m/a", "m/a is the input m/a"),
    ("check m/a m/b --output m/a", "m/a is the input m/a"),
]


@pytest.fixture
def folder(ckpts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with models and data in it."""
    for name in "abc":
        shutil.copytree(ckpts / name, tmp_path / "m" / name)
    (tmp_path / "link").symlink_to("m/c")
    for name in ("files", "adapter"):
        (tmp_path / name).mkdir()
    for name in "ab":
        shutil.copy(ckpts / f"lightning_{name}.ckpt", tmp_path / "files" / f"{name}.ckpt")
    (tmp_path / "adapter" / "adapter_config.json").write_text('{"base_model_name_or_path": "m/c"}')
    (tmp_path / "data").mkdir()
    for place in ("rows.csv", "data/rows.csv"):
        (tmp_path / place).write_text("text,label\nyes,1\nno,0\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("line", "sentence"), CASES)
def test_an_output_that_is_or_holds_an_input_is_refused(
    line: str, sentence: str, folder: Path, command: Command
) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    outcome = command(*line.split(), "--overwrite")
    assert outcome.code == 2
    assert sentence in outcome.err
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_what_is_no_input_may_be_replaced(folder: Path, command: Command) -> None:
    """Also by a command that repeats it from the config in it."""
    assert command("merge", "m/a", "m/b", "--output", "m/c", "--overwrite").code == 0
    repeated = command("merge", "--config", "m/c/fusionlab.yaml", "--output", "m/c", "--overwrite")
    assert repeated.code == 0, repeated.err
    assert sorted(path.name for path in (folder / "m").iterdir()) == ["a", "b", "c"]
