"""Results on standard output, progress on standard error, lines unbroken where no terminal shows them, or nothing."""

import json
import math

import pytest
from rich.table import Table
from rich.text import Text

from fusionlab import printing


def test_lines_are_not_broken_for_programs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    printing.results().print("word " * 100)
    assert capsys.readouterr().out.count("\n") == 1
    monkeypatch.setenv("COLUMNS", "40")
    printing.results().print("word " * 100)
    assert capsys.readouterr().out.count("\n") > 5


def test_titles_are_not_broken_for_programs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A title is as long as it is, however narrow its table."""
    monkeypatch.delenv("COLUMNS", raising=False)
    for title in ("from one model to another one", Text("from one model to another one")):
        table = Table("a", title=title, caption="* the best merge in its column")
        table.add_row("b")
        printing.results().print(table)
        lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
        assert "from one model to another one" in lines
        assert "* the best merge in its column" in lines


def test_progress_is_for_terminals(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    printing.progress().print("half")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    printing.progress().print("half")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "half" in captured.err


def test_json_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    """Inside a block that asked for it: one document, nothing for people; numbers that are not finite are null."""
    with printing.quieted(False):
        printing.publish({"not": "asked"})
        printing.ask_for_json()
        printing.results().print("a table")
        printing.publish({"a": [1, math.nan, (math.inf, "é")], "b": {"c": -0.5}})
    printing.publish({"no": "more"})
    assert json.loads(capsys.readouterr().out) == {"a": [1, None, [None, "é"]], "b": {"c": -0.5}}


def test_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    """Progress is shown inside the block, but not where quiet was asked for too."""
    for quiet, told in ((False, "half"), (True, "")):
        with printing.spoken(True), printing.quieted(quiet):
            printing.progress().print("half")
        assert capsys.readouterr().err.strip() == told
    printing.progress().print("half")
    assert capsys.readouterr().err == ""


def test_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    """Inside the block alone; a block inside a quiet one is quiet too."""
    with printing.quieted(True), printing.quieted(False):
        assert printing.is_quiet()
        printing.results().print("a table")
    assert not printing.is_quiet()
    assert capsys.readouterr().out == ""
