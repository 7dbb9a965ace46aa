"""Blueprints as plain data: JSON that says which description stands where, and nothing that could run.

A dataclass is an object that names its class under ``is`` and lists the fields that differ from their defaults. Reading
goes by the types that fields are annotated with: whatever does not fit them is refused, and a name is only looked up
among the classes that may stand there. A new group needs nothing here, as long as its fields are of these kinds:
numbers, texts, truth values, enumerations, tuples, mappings by text and dataclasses.
"""

from __future__ import annotations

import gc
import json
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from fusionlab.symmetry.axes import Concat
from fusionlab.symmetry.blueprint import Blueprint

KIND = "is"
Decode = Callable[[Any], Any]
# Classes whose constructor takes something else than their fields.
_MADE: dict[type, Callable[..., Any]] = {Concat: lambda parts: Concat(*parts)}


class PlainError(ValueError):
    """A text that is none of a blueprint."""


def dumps(blueprint: Blueprint) -> str:
    """The JSON of a blueprint, on one line; `loads` gives a blueprint that is equal in every field.

    Raises:
        TypeError: a field of something that is no plain data, a tensor for instance.
        ValueError: a number that JSON does not have.
    """
    return json.dumps(_encoded(blueprint), separators=(",", ":"), allow_nan=False)


def loads(text: str) -> Blueprint:
    """The blueprint that a text describes.

    Raises:
        PlainError: it is no JSON, or not that of a blueprint.
    """
    _named.cache_clear()  # a class may have come since
    is_collecting = gc.isenabled()
    # The collector would look through all that torch and transformers hold, which takes longer than reading.
    gc.disable()
    try:
        found: Blueprint = _decoder(Blueprint)(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise PlainError(f"no blueprint: {error}") from error
    finally:
        if is_collecting:
            gc.enable()
    return found


def _encoded(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        told = {f.name: getattr(value, f.name) for f in fields(value)}
        changed = {f.name: _encoded(told[f.name]) for f in fields(value) if told[f.name] != _default(f)}
        return {KIND: type(value).__name__, **changed}
    if isinstance(value, Enum):
        return _encoded(value.value)
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, tuple):
        return [_encoded(part) for part in value]
    if isinstance(value, Mapping):
        if any(type(name) is not str for name in value):
            raise TypeError("a mapping has names that are no texts; expected texts")
        return {name: _encoded(part) for name, part in value.items()}
    raise TypeError(f"{value!r} is no plain data")


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


@cache
def _decoder(hint: Any) -> Decode:
    """The function that reads a value of an annotated type."""
    origin, inside = get_origin(hint), get_args(hint)
    if hint in (bool, int, float, str, type(None)):
        return _exactly(hint)
    if origin in (Union, types.UnionType):
        return _one_of(inside)
    if origin is tuple:
        return _tuple(inside)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(inside)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    if isinstance(hint, type) and is_dataclass(hint):
        return _dataclass((hint,))
    raise TypeError(f"{hint!r} is no type of plain data")


def _exactly(kind: type) -> Decode:
    def decode(value: Any) -> Any:
        if type(value) is not kind:
            raise PlainError(f"a {type(value).__name__} stands where a {kind.__name__} was expected")
        return value

    return decode


def _one_of(kinds: tuple[Any, ...]) -> Decode:
    described: tuple[type, ...] = tuple(kind for kind in kinds if is_dataclass(kind) and isinstance(kind, type))
    decoders = {kind: _decoder(kind) for kind in kinds if kind not in described}
    if described:
        decoders[dict] = _dataclass(described)
    plain = {kind: decoder for kind, decoder in decoders.items() if isinstance(kind, type)}
    others = [decoder for kind, decoder in decoders.items() if kind not in plain]

    def decode(value: Any) -> Any:
        decoder = plain.get(type(value), others[0] if others else None)
        if decoder is None:
            raise PlainError(f"a {type(value).__name__} stands where none was expected")
        return decoder(value)

    if len(others) > 1:
        raise TypeError(f"{others} cannot be told apart in JSON")
    return decode


def _tuple(inside: tuple[Any, ...]) -> Decode:
    is_open = len(inside) == 2 and inside[1] is Ellipsis
    # In order, or one for all; made when first used, since axes hold axes.
    kinds = inside[:1] if is_open else inside

    def decode(value: Any) -> tuple[Any, ...]:
        if type(value) is not list or (not is_open and len(value) != len(kinds)):
            raise PlainError(f"{str(value)[:40]!r} stands where a list was expected")
        if is_open:
            one = _decoder(kinds[0])
            return tuple([one(part) for part in value])
        return tuple(_decoder(kind)(part) for kind, part in zip(kinds, value, strict=True))

    return decode


def _mapping(inside: tuple[Any, ...]) -> Decode:
    if not inside or inside[0] is not str:
        raise TypeError(f"a mapping by {inside!r} is no plain data")

    def decode(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise PlainError(f"a {type(value).__name__} stands where a mapping was expected")
        one = _decoder(inside[1])
        return {name: one(part) for name, part in value.items()}

    return decode


def _dataclass(kinds: tuple[type, ...]) -> Decode:
    def decode(value: Any) -> Any:
        if type(value) is not dict:
            raise PlainError(f"a {type(value).__name__} stands where a description was expected")
        kind = _named(kinds, str(value.get(KIND)))
        known = _fields(kind)
        told = {name: known[name](part) for name, part in value.items() if name != KIND and name in known}
        if len(told) != len(value) - 1:
            raise PlainError(f"a {kind.__name__} has fields that are not known")
        return _MADE.get(kind, kind)(**told)

    return decode


@cache
def _named(kinds: tuple[type, ...], name: str) -> type:
    """The class of a name among some classes and those that derive from them."""
    found = [kind for known in kinds for kind in _derived(known) if kind.__name__ == name]
    if len(found) != 1:
        raise PlainError(f"{name[:40]!r} names {len(found)} classes; expected one")
    return found[0]


def _derived(kind: type) -> Iterator[type]:
    yield kind
    others: list[type] = kind.__subclasses__()
    for other in others:
        yield from _derived(other)


@cache
def _fields(kind: type) -> dict[str, Decode]:
    hints = get_type_hints(kind)
    return {field.name: _decoder(hints[field.name]) for field in fields(kind)}
