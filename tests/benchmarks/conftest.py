"""What tests of benchmarks share: the scripts, which import each other from their folder."""

import importlib
from typing import Any

import pytest

from tests.benchmarks.examples import BENCHMARKS


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a script by its name."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module
