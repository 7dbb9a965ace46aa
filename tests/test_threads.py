"""Solvers run side by side or at once; what ends a thread of a library is raised, and printed nowhere."""

import threading
from collections.abc import Callable

import pytest

from fusionlab.threads import failures_raised, solvers


@pytest.mark.parametrize("count", [1, 3])
def test_solvers_give_results_in_order_and_raise_where_they_are_asked_for(count: int) -> None:
    """One thread works in the one that asks."""
    with solvers(count) as pool:
        assert list(pool.map(lambda x: x * x, range(5))) == [0, 1, 4, 9, 16]
        failed, worked = pool.submit(fail), pool.submit(threading.current_thread)
        with pytest.raises(OSError, match="events"):
            failed.result()
        assert (worked.result() is threading.current_thread()) == (count == 1)


def fail() -> None:
    """End like a writer whose disk is full."""
    raise OSError(28, "No space left on device", "events")


def run(target: Callable[[], None]) -> None:
    """Run something in a thread of its own."""
    thread = threading.Thread(target=target)
    thread.start()
    thread.join()


def test_a_failure_is_raised_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    """The block goes on to its end, the first failure is raised, no traceback is printed, the hook is put back."""
    hook, ended = threading.excepthook, []

    @failures_raised()
    def block() -> None:
        run(fail)
        run([].pop)
        ended.append(True)

    with pytest.raises(OSError, match="events"):
        block()
    assert ended
    assert threading.excepthook is hook
    assert capsys.readouterr().err == ""


def test_an_error_of_the_block_comes_first() -> None:
    """What the block itself raises is not replaced."""
    hook = threading.excepthook

    @failures_raised()
    def block() -> None:
        run(fail)
        raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        block()
    assert threading.excepthook is hook


def test_threads_from_before_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that is already there fails as it would have without the block."""
    told: list[type[BaseException] | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: told.append(arguments.exc_type))
    go = threading.Event()

    def wait_and_fail() -> None:
        go.wait()
        fail()

    thread = threading.Thread(target=wait_and_fail)
    thread.start()
    with failures_raised():
        go.set()
        thread.join()
    assert told == [OSError]
