"""A note on models whose tokenizers give tokens other numbers, from their files alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fusionlab.checkpoints.hub import locate
from fusionlab.commands.console import tell
from fusionlab.errors import InputError

_FILE = "tokenizer.json"


def tell_other_tokens(sources: Sequence[str], names: Sequence[str] | None = None) -> None:
    """Tell on standard error which tokenizers number tokens otherwise than the first model's that has one.

    Args:
        sources: paths or hub ids of the models; what is no folder, or has no ``tokenizer.json``, is passed over.
        names: to call them by; the sources themselves if None.
    """
    files = {name: _file(source) for name, source in zip(names or sources, sources, strict=False)}
    known = {name: file.read_bytes() for name, file in files.items() if file is not None}
    first = next(iter(known), None)
    if first is None or all(content == known[first] for content in known.values()):
        return
    vocabularies = {name: _vocabulary(content) for name, content in known.items()}
    for name, tokens in vocabularies.items():
        count = sum(vocabularies[first].get(token) != number for token, number in tokens.items())
        if count and vocabularies[first]:
            tell(sentence(name, first, count))


def sentence(name: str, first: str, count: int) -> str:
    """A sentence on two tokenizers.

    Args:
        name: of a model.
        first: of the one that it is compared with.
        count: tokens that have another number there, or none.
    """
    return (
        f"The tokenizers of {name} and {first} give {count:,} tokens other numbers, so that rows of the embeddings "
        f"mean different tokens; fusionlab vocab gives models of different vocabularies one."
    )


def _file(source: str) -> Path | None:
    try:
        location = locate(source)
    except InputError:
        # Refused by what reads the model, in a sentence of its own.
        return None
    return location / _FILE if (location / _FILE).is_file() else None


def _vocabulary(content: bytes) -> dict[str, int]:
    """The tokens in a file of the tokenizers library, with their numbers; nothing where it is none."""
    try:
        told: Any = json.loads(content)
        listed = told["model"]["vocab"]
        tokens = {token[0]: number for number, token in enumerate(listed)} if isinstance(listed, list) else dict(listed)
        return tokens | {token["content"]: token["id"] for token in told.get("added_tokens") or ()}
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return {}
