"""Stubs are looked for without another Python."""

import subprocess
import sys
from pathlib import Path

import pytest
from jsonargparse import _stubs_resolver

import fusionlab.commands.console  # noqa: F401


def test_no_other_python_is_asked_for_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "check_output", refuse)
    monkeypatch.setattr(_stubs_resolver, "stubs_resolver", None)
    resolver = _stubs_resolver.get_stubs_resolver()
    path = resolver.ctx.search_path
    assert path
    assert set(path) <= {Path(entry) for entry in sys.path}
