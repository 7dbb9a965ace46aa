"""All that a description holds, for comparisons that miss nothing."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def every_field(value: Any) -> object:
    """The types, fields, entries and order of nested dataclasses, tuples and mappings; equality leaves nothing out."""
    if is_dataclass(value) and not isinstance(value, type):
        return type(value), [(field.name, every_field(getattr(value, field.name))) for field in fields(value)]
    if isinstance(value, Mapping):
        return dict, [(name, every_field(part)) for name, part in value.items()]
    if isinstance(value, tuple):
        return tuple, [every_field(part) for part in value]
    return type(value), repr(value)
