"""Long tables of cases: every run tries a part of them, and all are tried where ``EVERY_ARCHITECTURE`` is 1.

On a slow machine a run of the whole suite tries a part of every table.
"""

import os
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import TypeVar
from zlib import crc32

import pytest
import torch

Item = TypeVar("Item")

# All of them take minutes: make test-architectures.
EVERY = os.environ.get("EVERY_ARCHITECTURE", "") == "1"
# A test that takes many seconds, beside shorter ones of the same code.
long = pytest.mark.skipif(not EVERY, reason="takes long: make test-architectures")


def one_in(count: int, cases: Iterable[Item]) -> list[Item]:
    """The first of every so many cases, in their order; or all of them."""
    return [case for place, case in enumerate(cases) if EVERY or place % count == 0]


# Seconds of the processor for a step of training of one small layer, from which on the whole suite took two processes
# more than 20 minutes: they took 34 where a step took 0.0002.
SLOW = 1.4e-4
# On such a machine one case in so many of every test is tried.
FEWER = 4


def is_slow() -> bool:
    """True if this machine would take more than 20 minutes for every case of the suite."""
    layer, row = torch.nn.Linear(16, 16), torch.ones(4, 16)

    def seconds(steps: int = 1000) -> float:
        begin = time.process_time()
        for _ in range(steps):
            layer(row).sum().backward()
        return (time.process_time() - begin) / steps

    return min(seconds() for _ in range(5)) > SLOW


def left_out(names: Iterable[str]) -> set[str]:
    """The names of tests that a slow machine leaves out: of the cases of every test all but one in `FEWER`.

    Which one stays depends on the names alone.

    Args:
        names: of tests with their cases in brackets, as pytest has them.
    """
    cases = defaultdict(list)
    for name in names:
        cases[name.partition("[")[0]].append(name)
    ordered = (sorted(of_one, key=lambda name: crc32(name.encode())) for of_one in cases.values())
    return {name for of_one in ordered for place, name in enumerate(of_one) if place % FEWER}
