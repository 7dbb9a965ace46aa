"""A stand-in of Ray: tasks run in this process, one after another, on pickled copies of what they are given."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

HERE = {"Alive": True, "NodeID": "n", "NodeManagerAddress": "10.0.0.1", "Resources": {"CPU": 1.0}}


class RayError(Exception):
    """As Ray's."""


class RayTaskError(RayError):
    """What a task raised; the last line says it."""


class NodeDiedError(RayError):
    """A node is gone."""


class FakeRay(ModuleType):
    """The calls of Ray that the package makes.

    Attributes:
        node_list: the nodes there are.
        losses: by the name of a task, how often its node dies once the task is done.
        before: called before each task, with its name.
        names: of the tasks that ran, in order; of those that have none that of their function.
        options: what each task was given.
        cancelled: how many tasks were.
    """

    def __init__(self) -> None:
        super().__init__("ray")
        self.exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)
        self.node_list: list[dict[str, Any]] = [HERE]
        self.losses: dict[str, int] = {}
        self.before: Callable[[str], object] = lambda name: None
        self.names: list[str] = []
        self.options: list[dict[str, Any]] = []
        self.cancelled = 0
        self._stored: list[bytes] = []
        self._running: dict[int, Callable[[], Any]] = {}
        self._connected = False

    def is_initialized(self) -> bool:
        return self._connected

    def init(self, **_: Any) -> None:
        self._connected = True

    def shutdown(self) -> None:
        self._connected = False

    def nodes(self) -> list[dict[str, Any]]:
        return self.node_list

    def put(self, value: Any) -> int:
        self._stored.append(pickle.dumps(value))
        return len(self._stored) - 1

    def get(self, ref: int) -> Any:
        if ref in self._running:
            return self._running.pop(ref)()
        return pickle.loads(self._stored[ref])

    def wait(self, refs: list[int], num_returns: int, timeout: float) -> tuple[list[int], list[int]]:
        """The first of them is done."""
        return refs[:1], refs[1:]

    def cancel(self, ref: int, force: bool) -> None:
        self.cancelled += self._running.pop(ref, None) is not None

    def remote(self, function: Callable[..., Any]) -> Any:
        def options(**given: Any) -> Any:
            def start(*arguments: Any) -> int:
                ref, name = 10**6 + len(self.options), given.get("name", function.__name__)
                self.options.append(given)
                sent = pickle.dumps((function, arguments))
                self._running[ref] = lambda: self._run(name, sent, given["max_retries"])
                return ref

            return SimpleNamespace(remote=start)

        return SimpleNamespace(options=options)

    def _run(self, name: str, sent: bytes, retries: int) -> Any:
        for _ in range(retries + 1):
            self.before(name)
            self.names.append(name)
            function, arguments = pickle.loads(sent)
            found = pickle.dumps(function(*arguments))
            if not self.losses.get(name):
                return pickle.loads(found)
            self.losses[name] -= 1
        raise NodeDiedError("the node is gone")


def fake_ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    """The stand-in, in the place of Ray until the test ends."""
    fake = FakeRay()
    strategies = ModuleType("ray.util.scheduling_strategies")
    strategies.NodeAffinitySchedulingStrategy = lambda *given, **named: None  # type: ignore[attr-defined]
    for name, module in (("ray", fake), ("ray.util", ModuleType("ray.util")), (strategies.__name__, strategies)):
        monkeypatch.setitem(sys.modules, name, module)
    return fake
