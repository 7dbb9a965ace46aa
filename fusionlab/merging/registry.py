"""The registry that every merge method joins."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any, get_type_hints

from fusionlab.errors import InputError
from fusionlab.merging.kinds import is_plain
from fusionlab.merging.method import HOLDS, NEEDS, Holds, MergeMethod, Merger, Needs, Together, Unit
from fusionlab.registration import first_parameters
from fusionlab.suggestions import did_you_mean

METHODS: dict[str, MergeMethod] = {}


def merge_method(
    name: str,
    needs: Needs = (),
    unit: Unit = "model",
    survey: Callable[..., Any] | None = None,
    refuse: Callable[..., None] | None = None,
    holds: Holds = HOLDS,
    together: Together | None = None,
) -> Callable[[Merger], Merger]:
    """Register ``f(ingredients, **hyperparameters) -> state``, or a generator of parts of it, as a merge method.

    Args:
        name: in options and tables.
        needs: some of `NEEDS`; or a function that takes the hyperparameters by keyword and returns them.
        unit: see `MergeMethod`, like what follows.
        survey: what is looked at of all parameters first.
        refuse: what is refused before any work.
        holds: numbers in memory.
        together: parameters that depend on each other.

    Raises:
        TypeError: a function of another signature, a hyperparameter without default or of a type that cannot be
            written in a config, or a need that there is not.
    """

    def register(function: Merger) -> Merger:
        what = "the merge method"
        first_parameters(function, ("ingredients",), what)
        hints = get_type_hints(function)
        for parameter in list(inspect.signature(function).parameters)[1:]:
            if not is_plain(hints.get(parameter)):
                raise TypeError(
                    f"{what} {name!r} has a hyperparameter {parameter!r} of {hints.get(parameter, 'no type')}; "
                    f"expected float, int, bool or a Literal, or one of these or None; or float | Sequence[float]"
                )
        if unknown := [] if callable(needs) else [need for need in needs if need not in NEEDS]:
            raise TypeError(f"{what} {name!r} needs {unknown[0]!r}; expected some of {', '.join(NEEDS)}")
        METHODS[name] = MergeMethod(name, function, needs, unit, survey, refuse, holds, together)
        return function

    return register


def methods() -> tuple[str, ...]:
    """The names of all merge methods."""
    _import_all()
    return tuple(sorted(METHODS))


def _import_all() -> None:
    """Import every file beside this one, where methods register themselves."""
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{__package__}.{module.name}")


def find_method(name: str) -> MergeMethod:
    """A merge method by name.

    Raises:
        InputError: there is none.
    """
    if name not in METHODS and name.isidentifier():
        # Most methods are alone in a file of their name, and some others import packages that take seconds.
        try:
            importlib.import_module(f"{__package__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__package__}.{name}":
                raise
    if name not in METHODS and name not in methods():
        raise InputError(
            f"merge method {name!r} does not exist; expected one of {', '.join(methods())}"
            f"{did_you_mean(name, methods())}"
        )
    return METHODS[name]
