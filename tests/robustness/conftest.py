"""One fork server and one set of undamaged inputs for all tests of a worker."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.robustness.client import Server
from tests.robustness.fuzz import make_sound

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here reads ``/proc`` and forks a process that has imported torch, which only Linux takes well."""
    if sys.platform != "linux":
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="forks processes and reads /proc: Linux only"))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A process that has paid the imports."""
    started = Server(tmp_path_factory.mktemp("server") / "own")
    yield started
    started.close()


@pytest.fixture(scope="session")
def sound(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of undamaged inputs that no test changes."""
    return make_sound(server, tmp_path_factory.mktemp("sound"))
