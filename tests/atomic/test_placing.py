"""An output that is replaced is there until the new one is."""

import errno
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fusionlab.atomic import atomic_file, checks, refuse_existing, writing
from fusionlab.errors import InputError
from tests.atomic.outputs import write
from tests.forked import Child


def test_replacing(tmp_path: Path, how: str) -> None:
    """Folders, files, one by the other, and links themselves; nothing else is left."""
    write(tmp_path / "out", "old")
    write(tmp_path / "out", "new")
    assert (tmp_path / "out" / "x").read_text() == "new"
    for text in ("file", "another"):
        with atomic_file(tmp_path / "out", overwrite=True) as file:
            file.write_text(text)
        assert (tmp_path / "out").read_text() == text
    write(tmp_path / "elsewhere", "kept")
    (tmp_path / "out").unlink()
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    write(tmp_path / "out", "new")
    assert not (tmp_path / "out").is_symlink()
    assert (tmp_path / "elsewhere" / "x").read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "out"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it may take two renames")
def test_an_output_is_replaced_without_a_moment_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux exchanges two names in one step; a rename of either would be a second one."""
    write(tmp_path / "out", "old")

    def refused(self: Path, target: Path) -> None:
        raise AssertionError(f"{self} was renamed")

    monkeypatch.setattr(Path, "rename", refused)
    monkeypatch.setattr(Path, "replace", refused)
    write(tmp_path / "out", "new")
    assert (tmp_path / "out" / "x").read_text() == "new"


def test_a_failing_rename_puts_the_old_output_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two."""
    write(tmp_path / "out", "old")
    monkeypatch.setattr("fusionlab.atomic.placing.exchange", lambda first, second: False)
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if ".fusionlab-new-" in self.name:
            raise OSError(errno.EIO, "Input/output error", str(self))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="Input/output") as caught:
        write(tmp_path / "out", "new")
    assert caught.value.filename == str(tmp_path / "out"), "told of the output, not of its temporary name"
    assert (tmp_path / "out" / "x").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("name", ["out", "x" * 255])
@pytest.mark.parametrize("again", [refuse_existing, lambda path, overwrite: write(path, "newest")])
def test_a_kill_between_two_renames_is_mended_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: Callable[..., None], name: str
) -> None:
    """The old output has its name back as soon as somebody is about to write there, and nothing is left over.

    A run that writes another output into that folder leaves it alone: it is all that there is of it.
    """
    write(tmp_path / name, "old")
    rename = Path.rename

    def killed() -> int:
        monkeypatch.setattr("fusionlab.atomic.placing.exchange", lambda first, second: False)

        def renamed(self: Path, target: Path) -> Path:
            if ".fusionlab-new-" in self.name:
                os.kill(os.getpid(), signal.SIGKILL)
            return rename(self, target)

        Path.rename = renamed  # type: ignore[method-assign, assignment]
        write(tmp_path / name, "new")
        return 0

    assert Child(killed).end().code == -signal.SIGKILL
    assert not (tmp_path / name).exists()
    refuse_existing(tmp_path / "another", overwrite=True)
    assert not (tmp_path / name).exists()
    assert len(list(tmp_path.glob(".*.fusionlab-old-*"))) == 1
    seen: list[str] = []
    refuse = checks.refuse_target

    def looked(target: Path, overwrite: bool) -> None:
        seen.append((target / "x").read_text())
        refuse(target, overwrite)

    for asking in (checks, writing):
        monkeypatch.setattr(asking, "refuse_target", looked)
    again(tmp_path / name, overwrite=True)
    assert seen[0] == "old"
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_an_output_that_appears_at_the_last_moment_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file would be replaced by a plain rename without a word."""
    monkeypatch.setattr(writing, "refuse_target", lambda target, overwrite: None)

    def meanwhile() -> None:
        with atomic_file(tmp_path / "out") as file:
            file.write_text("mine")
            (tmp_path / "out").write_text("theirs")

    with pytest.raises(InputError, match="another process wrote it"):
        meanwhile()
    assert (tmp_path / "out").read_text() == "theirs"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("name", ["x" * 255, "\N{GREEK SMALL LETTER ALPHA}" * 127])
def test_the_longest_names(tmp_path: Path, name: str, how: str) -> None:
    """The temporary name is no longer than the output's may be."""
    write(tmp_path / name, "old")
    write(tmp_path / name, "new")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    with pytest.raises(OSError, match="too long"):
        refuse_existing(tmp_path / f"{name}xx")
