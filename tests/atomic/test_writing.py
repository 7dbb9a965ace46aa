"""An output appears complete or not at all, and on the disk."""

import errno
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fusionlab.atomic import atomic_file, atomic_folder, placing, replaced_entries
from fusionlab.errors import InputError
from fusionlab.sentences import sentence
from tests.atomic.outputs import write
from tests.forked import Child


def test_folder_appears_only_when_complete(tmp_path: Path) -> None:
    """Inside the block the target does not exist; afterwards nothing else does."""
    with atomic_folder(tmp_path / "deep" / "out") as folder:
        (folder / "x").write_text("1")
        assert not (tmp_path / "deep" / "out").exists()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]


@pytest.mark.parametrize("atomic", [atomic_file, atomic_folder])
def test_failure_leaves_the_old_output(tmp_path: Path, atomic) -> None:  # type: ignore[no-untyped-def]
    """An error inside the block keeps what was there before."""
    (tmp_path / "out").write_text("old")
    with pytest.raises(RuntimeError), atomic(tmp_path / "out", overwrite=True):
        raise RuntimeError
    assert (tmp_path / "out").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_an_output_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    """Two runs with one output: the second to finish is refused."""
    with pytest.raises(InputError, match="exists already"), atomic_folder(tmp_path / "out"):
        (tmp_path / "out").mkdir()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("atomic", [atomic_file, atomic_folder])
def test_failure_removes_the_parents_that_were_made(tmp_path: Path, atomic) -> None:  # type: ignore[no-untyped-def]
    """And only those."""
    (tmp_path / "there").mkdir()
    with pytest.raises(RuntimeError), atomic(tmp_path / "there" / "a" / "b" / "out"):
        raise RuntimeError
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


@pytest.mark.parametrize("named", [str, Path])
def test_a_copy_that_the_disk_takes_no_more_of_names_the_output(
    tmp_path: Path, named: Callable[[Path], object]
) -> None:
    """Its source is named first, and is not to blame; nothing of the temporary name is told."""
    with pytest.raises(OSError, match="No space") as failed, atomic_folder(tmp_path / "out") as folder:
        raise OSError(errno.ENOSPC, "No space left", "a/config.json", None, named(folder / "config.json"))
    assert failed.value.filename == str(tmp_path / "out" / "config.json")
    assert folder.name not in str(failed.value)


@pytest.mark.skipif(sys.platform != "linux", reason="the open files of a process are listed in /proc")
def test_everything_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and folders are synced, then renamed, then the folder with the name."""
    events: list[str] = []
    fsync, rename = os.fsync, placing.rename_to_free

    def synced(handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        name = str(path.relative_to(tmp_path))
        events.append("/".join("TEMPORARY" if part.startswith(".out") else part for part in Path(name).parts) or ".")
        fsync(handle)

    def renamed(source: Path, target: Path) -> None:
        events.append("renamed")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(placing, "rename_to_free", renamed)
    with atomic_folder(tmp_path / "deep" / "out") as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "x").write_text("1")
        (folder / "y").write_text("2")
    named = events.index("renamed")
    assert sorted(events[:named]) == [f"deep/TEMPORARY{name}" for name in ("", "/sub", "/sub/x", "/y")]
    assert events[named + 1 :] == ["deep", "."], "the folder with the name, and the one that has it"


def test_entries_replace_their_namesakes_once_all_are_complete(tmp_path: Path, how: str) -> None:
    """What has another name stays; an error in the middle leaves everything as it was."""
    (tmp_path / "plots").mkdir()
    for name in ("report", "plots/old", "kept"):
        (tmp_path / name).write_text("old")

    def write_entries(failing: bool) -> None:
        with replaced_entries(tmp_path) as folder:
            (folder / "report").write_text("new")
            (folder / "plots").mkdir()
            (folder / "plots" / "new").write_text("new")
            assert (tmp_path / "report").read_text() == "old"
            if failing:
                raise OSError(errno.ENOSPC, "No space left on device", str(folder / "report"))

    with pytest.raises(OSError, match="No space") as caught:
        write_entries(failing=True)
    assert caught.value.filename == str(tmp_path / "report")
    assert (tmp_path / "plots" / "old").exists()
    write_entries(failing=False)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "kept", "plots", "plots/new", "report",
    ]  # fmt: skip
    assert (tmp_path / "report").read_text() == "new"


def limited(write: Callable[[Path], object], target: Path) -> Callable[[], int]:
    """What writes an output of 1 MB where 100 kB are allowed, and prints what becomes of it."""

    def work() -> int:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            with atomic_folder(target, overwrite=True) as folder:
                write(folder / "model")
        except OSError as error:
            print(error.errno, error.filename, sentence(error), sep="|")
            return 2
        return 0

    return work


TENSORS = {"a": torch.zeros(250_000)}


@pytest.mark.parametrize(
    "written",
    [
        lambda path: path.write_bytes(bytes(1_000_000)),
        lambda path: save_file(TENSORS, path),
        lambda path: torch.save(TENSORS, path),
    ],
    ids=["bytes", "safetensors", "torch"],
)
def test_a_disk_that_takes_no_more(tmp_path: Path, written: Callable[[Path], object]) -> None:
    """Whoever writes: the system's own error, of the output by its name, which is as it was before."""
    write(tmp_path / "out", "old")
    ended = Child(limited(written, tmp_path / "out")).end()
    number, name, told = ended.out.strip().split("|")
    assert (ended.code, int(number)) == (2, errno.EFBIG)
    assert name.startswith(str(tmp_path / "out"))
    assert told == f"{name}: {told.partition(': ')[2]}"
    assert "ulimit -f" in told
    assert (tmp_path / "out" / "x").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
