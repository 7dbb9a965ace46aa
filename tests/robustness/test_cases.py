"""The cases that a slow machine tries of the suite."""

import time
from itertools import count
from pathlib import Path

import pytest

from tests.parts import FEWER, SLOW, is_slow, left_out

pytest_plugins = ["pytester"]
NAMES = [f"a.py::many[{number}]" for number in range(10)] + ["a.py::one", "b.py::many[0]", "b.py::several[x-1]"]


def test_of_every_test_one_case_stays() -> None:
    """At least one, whatever the order in which they are collected."""
    skipped = left_out(NAMES)
    stays = [name for name in NAMES if name not in skipped]
    assert {name.partition("[")[0] for name in stays} == {name.partition("[")[0] for name in NAMES}
    assert len(stays) == 3 + -(-10 // FEWER)
    assert left_out(reversed(NAMES)) == skipped


@pytest.mark.parametrize(("share", "slow"), [(0.9, False), (1.1, True)])
def test_the_processor_is_timed(monkeypatch: pytest.MonkeyPatch, share: float, slow: bool) -> None:
    """By the shortest of several times, for a step."""
    ticks = count()
    monkeypatch.setattr(time, "process_time", lambda: next(ticks) * 1000 * SLOW * share)
    assert is_slow() is slow


@pytest.mark.parametrize(("cases", "passed"), [("part", 4), ("all", 11)])
def test_cases_are_skipped(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, cases: str, passed: int) -> None:
    """As this suite's own settings have it."""
    monkeypatch.setenv("TEST_CASES", cases)
    pytester.makeconftest("from tests.conftest import pytest_collection_modifyitems")
    pytester.syspathinsert(Path(__file__).parents[2])
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("number", range(10))
        def test_many(number):
            pass

        def test_one():
            pass
        """
    )
    pytester.runpytest("-n", "0", "-p", "no:randomly").assert_outcomes(passed=passed, skipped=11 - passed)
