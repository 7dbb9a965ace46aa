"""One mutant, and the tests that reach it: run in children, mirrored folder first, fastest first, until one fails."""

import json
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.mutants import Mutant
from tests.mutation.reaching import PYTEST, Reach, Test
from tests.mutation.warm import KILLED_BY_ALARM, Copy

SLACK = 10.0  # seconds, beside five times what a test takes on the unchanged source


@dataclass
class Result:
    """What became of a mutant.

    Attributes:
        outcome: ``killed``, ``timeout`` or ``survived``.
        by: the test that failed or never ended, or what else stopped it.
        tests: how many tests were run at most.
        reached: how many reach the mutant; more than ``tests`` where they would take longer than the budget.
        seconds: the mutant's trial took these.
    """

    outcome: str
    by: str
    tests: int
    reached: int
    seconds: float


def try_mutant(mutant: Mutant, reach: Reach, copy: Copy, budget: float) -> Result:
    """Run what reaches a mutant, in a copy that is mutated meanwhile.

    Args:
        mutant: one whose change is valid.
        reach: what the tests reach on the unchanged source.
        copy: of the unchanged checkout; it is unchanged again afterwards.
        budget: seconds that the tests may take on the unchanged source.
    """
    started = time.monotonic()
    reached = tests_for(mutant, reach)
    phases = _within(budget, mutant, reached)
    count = sum(map(len, phases))
    assert mutant.mutated is not None
    copy.write(mutant.file, mutant.mutated)
    outcome, by = "survived", ""
    try:
        for tests in phases:
            outcome, by = _run(copy, tests)
            if outcome != "survived":
                break
    finally:
        copy.write(mutant.file, mutant.source)
    return Result(outcome, by, count, len(reached), time.monotonic() - started)


def tests_for(mutant: Mutant, reach: Reach) -> list[Test]:
    """The tests that run its lines.

    A line that runs on import belongs to whichever test imported it first; for those it is the tests that run the body
    of the function it is in or decorates, or else any line of the file.
    """
    extent = body(mutant)
    reached: list[Test] = []
    if extent is not None and extent[0] <= mutant.start[0]:
        reached = reach.of(mutant.file, mutant.start[0], mutant.end[0])
    if not reached and extent is not None:
        reached = reach.of(mutant.file, *extent)
    return reached or reach.of(mutant.file, 1, len(mutant.source.splitlines()))


def body(mutant: Mutant) -> tuple[int, int] | None:
    """First and last line of the body of the innermost function that a mutant is in or decorates; None without one."""
    from cosmic_ray.ast import get_ast

    node = get_ast(mutant.source).get_leaf_for_position(mutant.start, include_prefixes=True)
    while node is not None and node.type not in ("funcdef", "decorated"):
        node = node.parent
    if node is not None and node.type == "decorated":
        node = node.children[-1]
    if node is None or node.type != "funcdef":
        return None
    return node.children[-1].get_first_leaf().start_pos[0] + 1, node.end_pos[0]


def _within(budget: float, mutant: Mutant, reached: list[Test]) -> list[list[Test]]:
    """The tests that fit the budget, in two groups: those of the folder that mirrors the mutant's, then others."""
    folder = f"tests/{mutant.file.split('/')[1]}/"
    groups: list[list[Test]] = [[], []]
    shared: set[str] = set()
    for test in sorted(reached, key=lambda test: (not test.name.startswith(folder), test.total)):
        cost = test.seconds + (0 if test.file in shared else test.fixtures)
        if cost <= budget or not any(groups):
            budget -= cost
            shared.add(test.file)
            groups[not test.name.startswith(folder)].append(test)
    return [group for group in groups if group]


def _run(copy: Copy, tests: list[Test]) -> tuple[str, str]:
    told = copy.folder / "told.json"
    told.unlink(missing_ok=True)
    total = sum(test.seconds for test in tests) + sum({test.file: test.fixtures for test in tests}.values())
    code = copy.run(lambda: _child(tests, told), 5 * total + SLACK * 6 + 60)
    story: dict[str, Any] = json.loads(told.read_text()) if told.exists() else {}
    if code == KILLED_BY_ALARM:
        return "timeout", story.get("running", "importing")
    if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return "survived", ""
    if code == pytest.ExitCode.TESTS_FAILED:
        return "killed", story.get("failed", "importing")
    return "killed", story.get("running", f"importing (exit code {code})")


def _child(tests: list[Test], told: Path) -> int:
    files = list(dict.fromkeys(test.file for test in tests))
    return int(pytest.main([*PYTEST, *files], plugins=[_Chosen(tests, told)]))


class _Chosen:
    """A pytest plugin that keeps the chosen tests, in their order, each with its time limit."""

    def __init__(self, tests: list[Test], told: Path) -> None:
        # File by file, so that shared fixtures are made once; the quickest files and in them the quickest tests first.
        quickest: dict[str, float] = {}
        for test in tests:
            quickest[test.file] = min(test.total, quickest.get(test.file, test.total))
        order = sorted(tests, key=lambda test: (quickest[test.file], test.file, test.total))
        self.order = {test.name: position for position, test in enumerate(order)}
        self.limits = {test.name: 5 * test.total + SLACK for test in tests}
        self.told = told

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = sorted((item for item in items if item.nodeid in self.order), key=lambda i: self.order[i.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Any:
        self.told.write_text(json.dumps({"running": item.nodeid}))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process, even one that never comes back from C
        signal.setitimer(signal.ITIMER_REAL, self.limits[item.nodeid])
        result = yield
        signal.setitimer(signal.ITIMER_REAL, 0)
        return result

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.told.write_text(json.dumps({"failed": report.nodeid}))
