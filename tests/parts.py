"""Long tables of cases: every run tries a part of them, and all are tried where ``EVERY_ARCHITECTURE`` is 1."""

import os
from collections.abc import Iterable
from typing import TypeVar

import pytest

Item = TypeVar("Item")

# All of them take an hour and more: make test-whole, and of inference alone make test-architectures.
EVERY = os.environ.get("EVERY_ARCHITECTURE", "") == "1"
# A test that takes many seconds, beside shorter ones of the same code.
long = pytest.mark.skipif(not EVERY, reason="takes long: make test-whole")


def one_in(count: int, cases: Iterable[Item]) -> list[Item]:
    """The first of every so many cases, in their order; or all of them."""
    return [case for place, case in enumerate(cases) if EVERY or place % count == 0]
