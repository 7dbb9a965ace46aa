"""Fields of a config that hold the numbers of special tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_ENDINGS = ("_token_id", "_token_index")


def number_fields(config: Any) -> Iterator[str]:
    """The names of the fields of a config of transformers that hold one token's number, or a list of them.

    Args:
        config: of a model, of a part of one, or of generation.
    """
    yield from (name for name in list(vars(config)) if name.endswith(_ENDINGS))


def parts_of(config: Any) -> Iterator[Any]:
    """A config of transformers, and those of its parts.

    Args:
        config: of a model.
    """
    yield config
    for name in getattr(config, "sub_configs", {}) or {}:
        if (part := getattr(config, name, None)) is not None:
            yield from parts_of(part)
