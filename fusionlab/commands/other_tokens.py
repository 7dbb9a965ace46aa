"""A note on models whose tokenizers give tokens other numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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
    from fusionlab.commands.check_facts import other_tokens, tokens_in  # noqa: PLC0415 - imports what reads tokenizers

    places = dict(zip(names or sources, sources, strict=False))
    wanted = tokens_in(places[first])
    for name in known:
        if count := other_tokens(tokens_in(places[name]), wanted):
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
