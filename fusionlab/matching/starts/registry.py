"""The registry of starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fusionlab.errors import InputError
from fusionlab.matching.pair import Pair
from fusionlab.registration import first_parameters
from fusionlab.symmetry import Alignment

# From a pair and `MatchOptions`, which name a start and so cannot be named here.
StartFunction = Callable[[Pair, Any], Alignment]


@dataclass(frozen=True)
class Start:
    """A registered start.

    Attributes:
        name: in options and tables.
        function: from a pair and options to an alignment of the source, the ascent from there included.
        needs: ``activations``, or nothing.
    """

    name: str
    function: StartFunction
    needs: tuple[str, ...] = ()


_registry: dict[str, Start] = {}


def start(name: str, needs: tuple[str, ...] = ()) -> Callable[[StartFunction], StartFunction]:
    """Register ``f(pair, options) -> alignment`` as a start of matching by weights.

    Args:
        name: in options and tables.
        needs: ``("activations",)`` where it looks at those of the pair.

    Raises:
        TypeError: a function of another signature.
    """

    def register(function: StartFunction) -> StartFunction:
        first_parameters(function, ("pair", "options"), "the start")
        _registry[name] = Start(name, function, needs)
        return function

    return register


def starts() -> tuple[str, ...]:
    """The names of all starts."""
    return tuple(sorted(_registry))


def find_start(name: str) -> Start:
    """The registered start of a name.

    Raises:
        InputError: there is none.
    """
    if name not in _registry:
        raise InputError(f"start is {name!r}; expected one of {', '.join(starts())}")
    return _registry[name]
