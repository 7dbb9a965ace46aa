"""What a killed run leaves behind is removed by the next one; nothing else ever is."""

import errno
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fusionlab.atomic import atomic_folder, leftovers, refuse_existing, scratch_folder
from tests.atomic.outputs import write
from tests.forked import Child


def killed_while_writing(target: Path) -> Child:
    """A child that is writing an output, and is killed."""

    def work() -> int:
        with atomic_folder(target, overwrite=True) as folder:
            (folder / "half").touch()
            time.sleep(60)
        return 0

    child = Child(work)
    while not list(target.parent.glob(".*/half")):
        time.sleep(0.01)
    child.send(signal.SIGKILL)
    return child


def hidden_names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("again", [refuse_existing, lambda path, overwrite: write(path, "new")])
def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path: Path, again: Callable[..., None]) -> None:
    """Also where the next one writes another output into that folder, and before anybody has asked for the exit code
    of the killed one."""
    child = killed_while_writing(tmp_path / "other")
    while (Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0]) != "Z":
        time.sleep(0.01)
    assert len(hidden_names(tmp_path)) == 1
    again(tmp_path / "out", overwrite=True)
    assert not hidden_names(tmp_path)
    child.end()


def test_what_lives_or_is_not_ours_stays(tmp_path: Path) -> None:
    """A run that is still writing; another host's; another user's; a name that only looks alike."""
    with atomic_folder(tmp_path / "out") as living:
        refuse_existing(tmp_path / "out")
        write(tmp_path / "out2", "x")
        assert living.exists()
        (name,) = hidden_names(tmp_path)
        kept = [name]
        host = leftovers.host()
        for changed in (name.replace(host, "another_12345678"), name[:-1], f"{name}0", name.replace("new", "own")):
            (tmp_path / changed).mkdir()
            kept.append(changed)
        write(tmp_path / "out3", "x")
        assert sorted(hidden_names(tmp_path)) == sorted(kept)
    assert living.name not in hidden_names(tmp_path)


def test_what_another_host_left_stays(tmp_path: Path) -> None:
    """Nobody here knows whether its process lives."""
    killed_while_writing(tmp_path / "out").end()
    (name,) = hidden_names(tmp_path)
    other = name.replace(leftovers.host(), "another_12345678")
    (tmp_path / other).mkdir()
    refuse_existing(tmp_path / "out")
    assert hidden_names(tmp_path) == [other]


def test_a_process_that_has_a_dead_ones_number_is_told_from_it(tmp_path: Path) -> None:
    """By when it began: what the dead one left is removed."""
    with atomic_folder(tmp_path / "out") as living:
        start = leftovers.started(os.getpid())
        assert start is not None
        (tmp_path / living.name.replace(start, f"{start}1")).mkdir()
        assert len(hidden_names(tmp_path)) == 2
        refuse_existing(tmp_path / "other")
        assert hidden_names(tmp_path) == [living.name]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_another_user_left_stays(tmp_path: Path) -> None:
    """In a shared folder, that user's next run removes it."""
    killed_while_writing(tmp_path / "out").end()
    (name,) = hidden_names(tmp_path)
    os.chown(tmp_path / name, 12345, 12345)
    refuse_existing(tmp_path / "out")
    assert hidden_names(tmp_path) == [name]


@pytest.mark.parametrize("place", ["", "x"])
def test_a_full_disk_of_a_scratch_folder_is_told_of_its_output(tmp_path: Path, place: str) -> None:
    """A mapped file has no name in the error, another one that of the hidden folder."""
    with pytest.raises(OSError, match="No space left") as caught, scratch_folder(tmp_path / "out") as folder:
        raise OSError(errno.ENOSPC, "No space left on device", *([str(folder / place)] if place else []))
    assert caught.value.filename == str(tmp_path / "out" / place)
    assert not list(tmp_path.iterdir())


def test_scratch_folders_are_removed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end, after an error, and by the next run after a kill."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def work() -> int:
        with scratch_folder() as folder:
            (folder / "half").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return 0

    Child(work).end()
    assert len(hidden_names(tmp_path)) == 1

    def failing() -> None:
        with scratch_folder() as folder:
            assert hidden_names(tmp_path) == [folder.name]
            raise RuntimeError

    with pytest.raises(RuntimeError):
        failing()
    assert not list(tmp_path.iterdir())
