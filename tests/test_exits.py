"""Exit codes, the log of an error of fusionlab's own, and a reader that goes away."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from fusionlab import cli, exits
from fusionlab.errors import InputError
from tests.forked import Child


def failing(error: BaseException):  # type: ignore[no-untyped-def]
    def run(rest: list[str]) -> None:
        raise error

    return lambda name: SimpleNamespace(run=run)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (InputError("x is 1; expected 2"), 2, "error: x is 1; expected 2"),
        (OSError(28, "No space left on device", "out"), 2, "error: out: no space is left"),
        (MemoryError(), 2, "error: memory ran out"),
        (RecursionError(), 2, "error: the input is nested too deeply"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ZeroDivisionError("a bug"), 70, "internal error: ZeroDivisionError: a bug"),
        (ValueError("two\nlines"), 70, "internal error: ValueError: two"),
    ],
)
def test_every_error_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    error: BaseException,
    code: int,
    words: str,
) -> None:
    """On standard error, with the command's name; no traceback."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(cli.importlib, "import_module", failing(error))
    assert cli.main(["merge"]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("fusionlab merge: ")
    assert words in captured.err
    assert len(list(tmp_path.iterdir())) == (code == 70), "a log is for errors of fusionlab's own"


def test_the_log_has_the_traceback_and_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its path is in the sentence."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(cli.importlib, "import_module", failing(ZeroDivisionError("a bug")))
    cli.main(["merge", "first", "second"])
    path = re.search(r"the traceback is in (\S+),", capsys.readouterr().err)
    assert path is not None
    text = Path(path.group(1)).read_text()
    assert text.startswith("fusionlab merge first second\n")
    assert "Traceback (most recent call last)" in text
    assert "ZeroDivisionError: a bug" in text
    assert Path(path.group(1)).parent == tmp_path


def test_the_traceback_is_shown_where_no_log_can_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Neither in the folder for temporary files nor in the cache; the sentence comes last."""
    (tmp_path / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.setattr(cli.importlib, "import_module", failing(ZeroDivisionError("a bug")))
    assert cli.main(["merge"]) == 70
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err
    assert "the traceback is above" in err.splitlines()[-1]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away_is_no_error(unbuffered: str) -> None:
    """``fusionlab --help | head -1``: code 141, as of a program that a closed pipe ends, and not a word.

    Whether the lines are written as they come or all at the end.
    """
    read, write = os.pipe()
    os.close(read)
    found = subprocess.run(
        [sys.executable, "-m", "fusionlab", "--help"],
        check=False,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    os.close(write)
    assert (found.returncode, found.stderr) == (exits.BROKEN_PIPE, "")


@pytest.mark.parametrize("printer", [print, Console().print])
def test_a_reader_that_goes_away_during_work(monkeypatch: pytest.MonkeyPatch, printer) -> None:  # type: ignore[no-untyped-def]
    """The same, whether Python or rich finds out."""

    def work() -> int:
        read, write = os.pipe()
        os.close(read)
        os.dup2(write, 1)

        def run(rest: list[str]) -> None:
            for _ in range(10_000):
                (Console().print if printer is not print else print)("a line of output")

        monkeypatch.setattr(cli.importlib, "import_module", lambda name: SimpleNamespace(run=run))
        return cli.main(["merge"])

    ended = Child(work).end()
    assert (ended.code, ended.err) == (141, "")


def test_a_broken_pipe_elsewhere_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that ends is not the reader of the output, be that a file or a pipe that is read."""
    read, write = os.pipe()

    def run(output: int | None) -> int:
        if output is not None:
            os.dup2(output, 1)
        monkeypatch.setattr(cli.importlib, "import_module", failing(BrokenPipeError(32, "Broken pipe")))
        return cli.main(["merge"])

    for output in (None, write):
        ended = Child(lambda output=output: run(output)).end()  # type: ignore[misc]
        assert ended.code == 2
        assert "other end of a connection has ended" in ended.err
    os.close(read)
    os.close(write)
