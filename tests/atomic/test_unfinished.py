"""An output that may be gone on with stays where its call is ended, is taken up by the next, and by one at a time."""

import signal
import time
from pathlib import Path

import pytest

from fusionlab.atomic import MANIFEST, atomic_folder, refuse_existing, unfinished
from fusionlab.errors import InputError
from tests.atomic.outputs import write
from tests.forked import Child


def killed(target: Path) -> None:
    """A call that is killed while it writes an output that may be gone on with."""

    def work() -> int:
        with atomic_folder(target, resume=True) as folder:
            (folder / "half").write_text("done")
            (folder / "ready").touch()
            time.sleep(60)
        return 0

    child = Child(work)
    while not list(target.parent.glob(".*/ready")):
        time.sleep(0.01)
    assert list(unfinished(target)) == []  # somebody is writing it
    child.send(signal.SIGKILL)
    child.end()


def ended(target: Path, error: type[BaseException]) -> Path:
    """The folder of a call that ends with an error while it writes."""
    folder = target
    try:
        with atomic_folder(target, resume=True) as folder:
            (folder / "half").touch()
            raise error("x")
    except error:
        return folder


def test_taken_up_after_a_kill(tmp_path: Path) -> None:
    """The next call finds the folder as it was left; then its name, and nothing else, is there."""
    target = tmp_path / "out"
    killed(target)
    refuse_existing(target, resume=True)
    write(tmp_path / "other", "x")  # a call for another output leaves it alone
    (left,) = unfinished(target)
    assert (left / "half").read_text() == "done"
    with atomic_folder(target, resume=True) as folder:
        assert (folder / "half").read_text() == "done"
        assert (folder / MANIFEST).is_file()
    assert sorted(path.name for path in target.iterdir()) == ["half", "ready"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "out"]


def test_what_has_no_manifest_is_removed(tmp_path: Path) -> None:
    """Nothing can go on with it, so a call that would does not keep it."""
    killed(tmp_path / "out")
    (left,) = tmp_path.glob(".*")
    (left / MANIFEST).unlink()
    refuse_existing(tmp_path / "out", resume=True)
    assert list(tmp_path.iterdir()) == []


def test_removed_by_a_call_that_does_not_go_on(tmp_path: Path) -> None:
    """One for the same output without the option removes what was left."""
    killed(tmp_path / "out")
    refuse_existing(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("error", "stays"), [(KeyboardInterrupt, True), (OSError, True), (InputError, False)])
def test_what_stays_after_an_error(tmp_path: Path, error: type[BaseException], stays: bool) -> None:
    """An interruption or a full disk leaves what can be gone on with; refused input leaves nothing."""
    ended(tmp_path / "out", error)
    assert [(path / "half").exists() for path in unfinished(tmp_path / "out")] == [True] * stays
    assert len(list(tmp_path.iterdir())) == stays


def test_two_at_once(tmp_path: Path) -> None:
    """A second call while the first writes has a folder of its own."""
    with atomic_folder(tmp_path / "out", resume=True) as first:
        assert ended(tmp_path / "out", KeyboardInterrupt) != first
        (first / "done").touch()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["done"]
