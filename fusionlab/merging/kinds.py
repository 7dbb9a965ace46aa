"""The types that hyperparameters of merge methods may have, and values that are not of theirs."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin

from fusionlab.errors import InputError

# A number for all models, or one for each.
PerModel = float | Sequence[float]


def check_kind(name: str, value: object, kind: Any) -> None:
    """Refuse a hyperparameter that is not of its type, and numbers that are not finite.

    Args:
        name: for the sentence.
        value: what was given.
        kind: as the function's signature has it: a number, a truth value, a Literal, or one of these and None; or
            `PerModel`, a number or a sequence of numbers.

    Raises:
        InputError: it is not.
    """
    kinds = (kind, *get_args(kind))
    if Sequence[float] in kinds and isinstance(value, Sequence) and not isinstance(value, str):
        for place, each in enumerate(value):
            check_kind(f"{name} of model {place}", each, float)
        return
    optional = " or null" if type(None) in kinds else ""
    if optional and value is None:
        return
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    expected = None
    if literal := next((k for k in kinds if get_origin(k) is Literal), None):
        if not isinstance(value, str) or value not in get_args(literal):
            expected = f"one of {', '.join(get_args(literal))}"
    elif bool in kinds:
        expected = None if isinstance(value, bool) else "true or false"
    elif int in kinds:
        expected = None if number and isinstance(value, numbers.Integral) else "a whole number"
    elif float in kinds:
        several = ", or a list of one for each model, such as [0.5, 0.3]" if Sequence[float] in kinds else ""
        expected = None if number and _finite(value) else f"a finite number{several}"
    if expected is not None:
        raise InputError(f"{name} is {value!r}; expected {expected}{optional}")


def _finite(value: Any) -> bool:
    """False too for whole numbers that are too large for a float."""
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def is_plain(kind: Any) -> bool:
    """True if values of a type can be written in a config and checked."""
    if get_origin(kind) is Literal:
        return True
    parts = [part for part in (get_args(kind) or (kind,)) if part is not type(None)]
    if kind == PerModel:
        return True
    return all(part in (float, int, bool) or get_origin(part) is Literal for part in parts)
