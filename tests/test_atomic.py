"""An output appears complete or not at all."""

import errno
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fusionlab import atomic as atomic_module
from fusionlab.atomic import atomic_file, atomic_folder, refuse_existing, require_space, try_to_write
from fusionlab.errors import InputError
from fusionlab.sentences import sentence
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


def test_working_folder_is_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even with overwrite."""
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    for target in (".", "..", str(tmp_path)):
        with pytest.raises(InputError, match="working folder"):
            refuse_existing(target, overwrite=True)


@pytest.mark.parametrize("atomic", [atomic_file, atomic_folder])
def test_failure_removes_the_parents_that_were_made(tmp_path: Path, atomic) -> None:  # type: ignore[no-untyped-def]
    """And only those."""
    (tmp_path / "there").mkdir()
    with pytest.raises(RuntimeError), atomic(tmp_path / "there" / "a" / "b" / "out"):
        raise RuntimeError
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


@pytest.fixture(params=["exchanged", "renamed twice"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to replace an output; the second is that of systems without the first."""
    if request.param == "renamed twice":
        monkeypatch.setattr(atomic_module, "exchange", lambda first, second: False)
    return request.param


def write(path: Path, text: str, overwrite: bool = True) -> None:
    """A folder with one file in it."""
    with atomic_folder(path, overwrite) as folder:
        (folder / "x").write_text(text)


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
    monkeypatch.setattr(atomic_module, "exchange", lambda first, second: False)
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
        monkeypatch.setattr(atomic_module, "exchange", lambda first, second: False)

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
    put = atomic_module._refuse

    def looked(target: Path, overwrite: bool) -> None:
        seen.append((target / "x").read_text())
        put(target, overwrite)

    monkeypatch.setattr(atomic_module, "_refuse", looked)
    again(tmp_path / name, overwrite=True)
    assert seen[0] == "old"
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.skipif(sys.platform != "linux", reason="the open files of a process are listed in /proc")
def test_everything_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and folders are synced, then renamed, then the folder with the name."""
    events: list[str] = []
    fsync, rename = os.fsync, atomic_module.rename_to_free

    def synced(handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        name = str(path.relative_to(tmp_path))
        events.append("/".join("TEMPORARY" if part.startswith(".out") else part for part in Path(name).parts) or ".")
        fsync(handle)

    def renamed(source: Path, target: Path) -> None:
        events.append("renamed")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(atomic_module, "rename_to_free", renamed)
    with atomic_folder(tmp_path / "deep" / "out") as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "x").write_text("1")
        (folder / "y").write_text("2")
    named = events.index("renamed")
    assert sorted(events[:named]) == [f"deep/TEMPORARY{name}" for name in ("", "/sub", "/sub/x", "/y")]
    assert events[named + 1 :] == ["deep", "."], "the folder with the name, and the one that has it"


def test_an_output_that_appears_at_the_last_moment_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file would be replaced by a plain rename without a word."""
    monkeypatch.setattr(atomic_module, "_refuse", lambda target, overwrite: None)

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


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
@pytest.mark.parametrize("target", ["/proc/x", "/proc/deep/er/x", "/sys/x"])
def test_where_nothing_can_be_written(target: str) -> None:
    """Permissions say that root may write there; only trying tells."""
    with pytest.raises(InputError, match=r"nothing can be written into .*; expected a folder"):
        refuse_existing(target)


def test_trying_leaves_nothing(tmp_path: Path) -> None:
    """Neither what was tried nor the folders on the way to it."""
    try_to_write(tmp_path / "a" / "b" / "out")
    assert not list(tmp_path.iterdir())


def test_a_link_to_nowhere_or_to_itself_is_no_folder(tmp_path: Path) -> None:
    """One sentence for each."""
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for name in ("nowhere", "circle"):
        with pytest.raises(InputError, match="nothing can be written into"):
            refuse_existing(tmp_path / name / "out")


def test_a_mounted_folder_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known before the work, as no rename can replace it after."""
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: path == tmp_path / "out")
    with pytest.raises(InputError, match="mounted file system"):
        refuse_existing(tmp_path / "out", overwrite=True)


def test_another_users_output_in_a_shared_folder_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder like ``/tmp`` only the owner may."""
    (tmp_path / "out").mkdir()
    tmp_path.chmod(0o1777)
    refuse_existing(tmp_path / "out", overwrite=True)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    tmp_path.chmod(0o777)
    refuse_existing(tmp_path / "out", overwrite=True)
    tmp_path.chmod(0o1777)
    with pytest.raises(InputError, match="another user"):
        refuse_existing(tmp_path / "out", overwrite=True)
    tmp_path.chmod(0o755)


def test_space_is_told_in_mib(tmp_path: Path) -> None:
    """What is needed and what there is, also for an output whose folders are not there yet."""
    require_space(tmp_path / "a" / "out", 1)
    with pytest.raises(
        InputError, match=r"out: about 1,099,511,627,776 MiB will be written, but .* has [\d,]+ MiB left"
    ):
        require_space(tmp_path / "a" / "out", 2**60)


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_a_file_system_without_a_size_has_space(tmp_path: Path) -> None:
    """It says nothing about what fits."""
    require_space("/proc/x", 2**60)


def test_entries_replace_their_namesakes_once_all_are_complete(tmp_path: Path, how: str) -> None:
    """What has another name stays; an error in the middle leaves everything as it was."""
    (tmp_path / "plots").mkdir()
    for name in ("report", "plots/old", "kept"):
        (tmp_path / name).write_text("old")

    def write_entries(failing: bool) -> None:
        with atomic_module.replaced_entries(tmp_path) as folder:
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
