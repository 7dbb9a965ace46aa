"""Which tests reach which lines, and how long they take: measured once for each test file, kept in a cache.

What is measured in a fixture belongs to every test that uses the fixture, not only to the first.
"""

import hashlib
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.mutants import FOLDERS
from tests.mutation.warm import Copy, imported, side_by_side

ENOUGH = 3600.0
# Tests that run commands in other processes, where nothing is measured.
ELSEWHERE = ("tests/robustness/", "tests/mutation/")
PYTEST = ["-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=", "-q", "-x", "--tb=line"]


@dataclass
class Test:
    """One test as it ran on the unchanged source.

    Attributes:
        name: pytest's id.
        seconds: its own, without shared fixtures.
        fixtures: seconds of the shared fixtures that it uses.
    """

    name: str
    seconds: float
    fixtures: float

    @property
    def file(self) -> str:
        return self.name.split("::")[0]

    @property
    def total(self) -> float:
        return self.seconds + self.fixtures


class Reach:
    """What all measured test files reach together."""

    def __init__(self) -> None:
        self.tests: list[Test] = []
        self.failed: list[str] = []
        self.modules: set[str] = set()
        self._lines: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))

    def add(self, measured: dict[str, Any]) -> None:
        first = len(self.tests)
        self.tests += [Test(*test) for test in measured["tests"]]
        self.failed += measured["failed"]
        self.modules |= set(measured["modules"])
        for file, lines in measured["lines"].items():
            for line, bits in lines.items():
                number = int(bits, 16)
                self._lines[file][int(line)] += [
                    first + index for index in range(number.bit_length()) if number >> index & 1
                ]

    def of(self, file: str, first: int, last: int) -> list[Test]:
        """The tests that run any of these lines."""
        lines = self._lines.get(file, {})
        return [
            self.tests[index] for index in sorted({i for line in range(first, last + 1) for i in lines.get(line, ())})
        ]


def measure(root: Path, copies: list[Copy], cache: Path, among: Iterable[str], say: Callable[[str], None]) -> Reach:
    """The reach of every test file, from the cache where neither it nor anything it imports has changed.

    Args:
        root: the checkout.
        copies: copies of it, each used by a process of its own.
        cache: folder of what was measured.
        among: only test files whose path begins with one of these; none for all.
        say: is told of each file that is measured.
    """
    cache.mkdir(exist_ok=True)
    names = sorted(path.relative_to(root).as_posix() for path in (root / "tests").rglob("test_*.py"))
    files = [name for name in names if name.startswith(tuple(among) or "") and not name.startswith(ELSEWHERE)]
    stale = [file for file in files if not _is_fresh(root, _kept(cache, file))]
    say(f"{len(stale)} of {len(files)} test files are to be measured")

    def measure_some(copy: Copy, files: list[str]) -> None:
        for file in files:
            started = time.monotonic()
            kept = _kept(cache, file)
            kept.unlink(missing_ok=True)
            copy.run(partial(_measure_file, copy.root, file, kept), ENOUGH, keep_bytecode=True)
            if not kept.exists():
                raise SystemExit(f"{file} cannot be run on the unchanged source")
            say(f"measured {file} ({time.monotonic() - started:.0f} s)")

    shares = enumerate(copies)
    side_by_side([partial(measure_some, copy, stale[index :: len(copies)]) for index, copy in shares])
    reach = Reach()
    for file in files:
        reach.add(json.loads(_kept(cache, file).read_text()))
    return reach


def _kept(cache: Path, file: str) -> Path:
    return cache / f"{file.replace('/', '.')}.json"


def _is_fresh(root: Path, kept: Path) -> bool:
    """The same folders were measured, and everything that was imported then is as it was."""
    if not kept.exists():
        return False
    measured = json.loads(kept.read_text())
    if measured.get("folders") != list(FOLDERS):
        return False
    return all(_digest(root / file) == digest for file, digest in measured["files"].items())


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _imported_from(root: Path) -> dict[str, str]:
    """The files of the checkout that this process has imported, with their digests."""
    paths = {Path(str(module.__file__)) for module in list(sys.modules.values()) if getattr(module, "__file__", None)}
    return {path.relative_to(root).as_posix(): _digest(path) for path in sorted(paths) if path.is_relative_to(root)}


def _measure_file(root: Path, file: str, output: Path) -> int:
    """Run one test file under coverage; in a child."""
    import coverage

    measuring = coverage.Coverage(
        data_file=None, config_file=False, source=[str(root / "fusionlab" / folder) for folder in FOLDERS]
    )
    measuring.start()
    recorder = _Recorder(measuring)
    arguments = [argument for argument in PYTEST if argument != "-x"]
    pytest.main([*arguments, file], plugins=[recorder])
    measuring.stop()
    measured = {**recorder.result(root), "folders": list(FOLDERS), "files": _imported_from(root)}
    output.write_text(json.dumps(measured))
    return 0


class _Recorder:
    """A pytest plugin that tells coverage which test or fixture is running."""

    def __init__(self, measuring: Any) -> None:
        self.measuring = measuring
        self.stack = [""]
        self.seconds: dict[str, float] = defaultdict(float)
        self.shared: dict[str, float] = defaultdict(float)
        self.users: dict[str, set[str]] = defaultdict(set)
        self.failed: set[str] = set()
        self.modules: list[str] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.modules = imported()

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.failed.add(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        for name, definitions in item._fixtureinfo.name2fixturedefs.items():
            for definition in definitions:
                self.users[_fixture(name, definition)].add(item.nodeid)
        self._enter(item.nodeid)
        result = yield
        self._leave()
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        name = _fixture(fixturedef.argname, fixturedef)
        self._enter(name)
        started = time.perf_counter()
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                self.shared[name] += time.perf_counter() - started
                self.seconds[self.stack[1]] -= time.perf_counter() - started
            self._leave()

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.outcome != "passed":
            self.failed.add(report.nodeid)

    def _enter(self, context: str) -> None:
        self.stack.append(context)
        self.measuring.switch_context(context)

    def _leave(self) -> None:
        self.stack.pop()
        self.measuring.switch_context(self.stack[-1])

    def result(self, root: Path) -> dict[str, Any]:
        names = [name for name in self.seconds if name not in self.failed]
        index = {name: position for position, name in enumerate(names)}
        fixtures = defaultdict(float)
        for fixture, users in self.users.items():
            for user in users:
                fixtures[user] += self.shared.get(fixture, 0.0)
        data = self.measuring.get_data()
        lines: dict[str, dict[int, str]] = {}
        for file in data.measured_files():
            found = {}
            for line, contexts in data.contexts_by_lineno(file).items():
                reached = {name for context in contexts for name in self.users.get(context, {context})}
                if bits := sum(1 << index[name] for name in reached if name in index):
                    found[line] = f"{bits:x}"
            lines[Path(file).relative_to(root).as_posix()] = found
        return {
            "tests": [[name, round(max(self.seconds[name], 0.0), 3), round(fixtures[name], 3)] for name in names],
            "failed": sorted(self.failed),
            "modules": self.modules,
            "lines": lines,
        }


def _fixture(name: str, definition: Any) -> str:
    return f"fixture {name} of {definition.baseid}"
