"""Hyperparameters and weights that differ from parameter to parameter: mappings from patterns of names to values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from fusionlab.errors import InputError

# Beside its own hyperparameters, what every method has that looks at no more than a parameter at a time.
WEIGHTS = "layer_weights"


def by_pattern(given: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Those of some hyperparameters that are given by patterns."""
    return {name: value for name, value in given.items() if isinstance(value, Mapping)}


def of_parameter(parameter: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The hyperparameters of one parameter.

    Args:
        parameter: its name.
        given: values, or mappings from patterns (``*`` for anything, ``?`` for one character, ``[ab]`` for some) to
            values, of which the first that matches the whole name counts.

    Returns:
        Values by hyperparameter; one of which no pattern matches is left out, so that its default counts.
    """
    found = {}
    for name, value in given.items():
        if not isinstance(value, Mapping):
            found[name] = value
            continue
        matching = [pattern for pattern in value if fnmatchcase(parameter, pattern)]
        if matching:
            found[name] = value[matching[0]]
    return found


def weights_alone(given: Mapping[str, Any]) -> dict[str, Any]:
    """Weights by parameter, where there are any: what the plain mean may be given of another method's settings."""
    return {name: value for name, value in given.items() if name == WEIGHTS}


def groups(parameters: Iterable[str], given: Mapping[str, Any]) -> list[tuple[list[str], dict[str, Any]]]:
    """Parameters that have the same hyperparameters, and these; arguments are those of `of_parameter`."""
    found: dict[str, tuple[list[str], dict[str, Any]]] = {}
    for parameter in parameters:
        values = of_parameter(parameter, given)
        found.setdefault(repr(values), ([], values))[0].append(parameter)
    return list(found.values())


def check_patterns(parameters: Iterable[str], given: Mapping[str, Any], tied: Mapping[str, str]) -> None:
    """Refuse patterns that no name matches, which would silently do nothing.

    Args:
        parameters: the names of all.
        given: as in `of_parameter`.
        tied: further names of tied parameters, and the one that each is merged by.

    Raises:
        InputError: a pattern that matches none of them, or further names alone.
    """
    names = [name for name in parameters if name not in tied]
    for hyperparameter, values in by_pattern(given).items():
        for pattern in values:
            if not any(fnmatchcase(name, pattern) for name in names):
                if again := next((name for name in tied if fnmatchcase(name, pattern)), None):
                    raise InputError(
                        f"{hyperparameter} has the pattern {pattern!r}, which matches {again!r}; that is tied to "
                        f"{tied[again]!r}, so expected a pattern for this name, by which both are merged"
                    )
                raise InputError(
                    f"{hyperparameter} has the pattern {pattern!r}, which matches no parameter; expected one for names "
                    f"such as {names[0]!r}, with * for anything"
                )
