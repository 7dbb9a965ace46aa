"""Facts about checkpoints that are told before anything is done with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from rich.table import Table

from fusionlab.checkpoints import Checkpoint
from fusionlab.checkpoints.adapters import read_adapter
from fusionlab.checkpoints.hub import locate
from fusionlab.checkpoints.huggingface import is_transformers
from fusionlab.data.tokenizers import has_tokenizer, load_tokenizer
from fusionlab.dtypes import name_of
from fusionlab.errors import InputError
from fusionlab.finite import all_finite, not_finite
from fusionlab.models import aliases
from fusionlab.printing import size_words
from fusionlab.streaming import StoredModel

# In the names of classes of transformers that have an output embedding.
_WRITERS = ("LMHead", "ForCausalLM", "ForMaskedLM", "MTModel", "Generation", "ForPreTraining")
# Numbers that are looked at together.
_PIECE = 2**22


@dataclass(frozen=True)
class Facts:
    """Facts about one checkpoint.

    Attributes:
        stored: the kind and number of its files, in words.
        architecture: the class that it is of, as its config says.
        numbers: of all its floating-point parameters and buffers.
        bytes: that they take.
        types: how many numbers have each type, by name.
        embeddings: rows of its table of embeddings, where it has one.
        tokens: of its tokenizer, where it has one.
        other_tokens: tokens that have another number, or none, in the first model's tokenizer; None where not both have
            one.
        ties: whether the output embedding is the input embedding, where the config says so and the class writes words.
    """

    stored: str
    architecture: str
    numbers: int
    bytes: int
    types: Mapping[str, int]
    embeddings: int | None
    tokens: int | None
    other_tokens: int | None
    ties: bool | None


def facts_of(
    model: StoredModel | Checkpoint, tokens: Mapping[str, int] | None, first: Mapping[str, int] | None
) -> Facts:
    """Facts about one checkpoint.

    Args:
        model: a folder of which nothing but the description was read, or a checkpoint that was read.
        tokens: of its tokenizer, by number.
        first: of the first model's.
    """
    config: Mapping[str, Any] = {}
    if isinstance(model, StoredModel):
        config = model.config
        specs = [(tensor.dtype, tensor.count, tensor.size) for tensor in model.tensors.values()]
        files = len({tensor.file for tensor in model.tensors.values()})
        stored = f"{model.format}, {files} shards" if files > 1 else model.format
        stored += ", FP8 with scales" if model.is_scaled else ""
        stored = _adapter(model) or stored
    else:
        if is_transformers(model.model):
            config = model.model.config.to_dict() | {"architectures": [type(model.model).__name__]}
        state = model.model.state_dict()
        once = {name: tensor for name, tensor in state.items() if name not in aliases(state)}
        specs = [(t.dtype, t.numel(), t.numel() * t.element_size()) for t in once.values()]
        stored = _adapter(model) or model.format
    types: dict[str, int] = {}
    for dtype, count, _ in specs:
        if dtype.is_floating_point:
            types[name_of(dtype)] = types.get(name_of(dtype), 0) + count
    inner = config.get("text_config")
    words = dict(inner if isinstance(inner, Mapping) else {}) | dict(config)
    architecture = _architecture(model, config)
    rows, ties = words.get("vocab_size"), words.get("tie_word_embeddings")
    writes = any(head in architecture for head in _WRITERS)
    return Facts(
        stored,
        architecture,
        sum(types.values()),
        sum(size for _, _, size in specs),
        types,
        rows if isinstance(rows, int) else None,
        None if tokens is None else len(tokens),
        other_tokens(tokens, first),
        ties if writes and isinstance(ties, bool) else None,
    )


def _architecture(model: StoredModel | Checkpoint, config: Mapping[str, Any]) -> str:
    names = config.get("architectures")
    if isinstance(names, list) and names:
        return str(names[0])
    if isinstance(model, Checkpoint):
        return type(model.model).__name__
    return str(config.get("architecture") or config.get("model_type") or "not said")


def _adapter(model: StoredModel | Checkpoint) -> str | None:
    """The adapter that a checkpoint was read from, in words; None where it was none."""
    if model.base is None:
        return None
    folder = locate(model.source)
    adapter = read_adapter(folder)
    ranks = sorted({change.down.shape[0] for change in adapter.changes.values()})
    words = [f"of rank {ranks[0]}" if len(ranks) == 1 else f"of ranks {ranks[0]} to {ranks[-1]}"] if ranks else []
    # Their rank is known with the class alone, which says how many experts share the factors.
    words += ["of experts"] if adapter.wrapped else []
    return f"LoRA adapter {' and '.join(words) or 'empty'} on {model.base}"


def other_tokens(tokens: Mapping[str, int] | None, first: Mapping[str, int] | None) -> int | None:
    """The count of tokens that have another number, or none, in the first model's tokenizer; None without either.

    Args:
        tokens: of a tokenizer, by number.
        first: of the first model's.
    """
    if tokens is None or first is None:
        return None
    return sum(first.get(token) != number for token, number in tokens.items())


def tokens_in(source: str) -> dict[str, int] | None:
    """The tokens of a checkpoint's tokenizer by text, with their numbers; None where it has none that can be read."""
    location = locate(source)
    if not location.is_dir() or not has_tokenizer(location):
        return None
    try:
        return load_tokenizer(source).get_vocab()
    except InputError:
        return None


def refuse_values(model: StoredModel) -> None:
    """Read all numbers of a folder, and refuse NaN and infinities.

    Args:
        model: that is looked at.

    Raises:
        InputError: names the first parameter with such values.
    """
    with model.opened() as reader:
        for name, tensor in model.tensors.items():
            if not tensor.dtype.is_floating_point:
                continue
            starts = range(0, tensor.count, _PIECE)
            read = (reader.read(name, start, min(_PIECE, tensor.count - start)) for start in starts)
            if bad := sum(0 if all_finite(piece) else int((~torch.isfinite(piece)).sum()) for piece in read):
                raise not_finite(model.source, name, bad, tensor.count)


def facts_table(found: Mapping[str, Facts]) -> Table:
    """A row for each model.

    Args:
        found: by name.
    """
    table = Table(title="Models", title_justify="left")
    for heading in ("model", "stored as", "architecture"):
        table.add_column(heading, overflow="fold")
    for heading in ("parameters", "size"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("types", "embeddings", "tokenizer", "tied"):
        table.add_column(heading, overflow="fold")
    for name, one in found.items():
        tied = {None: "", True: "yes", False: "no"}[one.ties]
        rows = "" if one.embeddings is None else f"{one.embeddings:,}"
        cells = (f"{one.numbers:,}", size_words(one.bytes), _types(one.types), rows, _tokens(one), tied)
        table.add_row(name, one.stored, one.architecture, *cells)
    return table


def _types(types: Mapping[str, int]) -> str:
    """Types with the share of each where there are several."""
    if len(types) < 2:
        return next(iter(types), "none")
    ordered = sorted(types.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {count / sum(types.values()):.1%}" for name, count in ordered)


def _tokens(one: Facts) -> str:
    if one.tokens is None:
        return "none"
    differ = f", {one.other_tokens:,} otherwise than in the first" if one.other_tokens else ""
    return f"{one.tokens:,} tokens{differ}"
