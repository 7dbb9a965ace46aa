"""The tokens of a tokenizer by their numbers, and a tokenizer of other numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transformers import PreTrainedTokenizerBase

from fusionlab.data.tokenizers import load_tokenizer
from fusionlab.errors import InputError

KINDS = ("BPE", "WordPiece", "WordLevel", "Unigram")
# The score of a token that a Unigram model must have a place for and never chooses.
_NEVER = -1e6


@dataclass(frozen=True)
class Vocabulary:
    """The vocabulary of one model.

    Attributes:
        source: the path or hub id of its checkpoint.
        rows: of its table of embeddings; more than tokens where the table was padded.
        tokens: numbers by token.
        described: the tokenizer, as ``tokenizer.json`` has it.
        tokenizer: of transformers.
    """

    source: str
    rows: int
    tokens: Mapping[str, int]
    described: Mapping[str, Any] = field(repr=False)
    tokenizer: PreTrainedTokenizerBase = field(repr=False)

    @property
    def names(self) -> dict[int, str]:
        """Tokens by number."""
        return {number: token for token, number in self.tokens.items()}


def vocabulary_of(source: str, rows: int) -> Vocabulary:
    """The vocabulary in a checkpoint.

    Args:
        source: its path or hub id.
        rows: of the model's table of embeddings.

    Raises:
        InputError: no tokenizer, one of an unknown kind, or one with more tokens than the model has rows.
    """
    tokenizer: Any = load_tokenizer(source)
    described = json.loads(tokenizer.backend_tokenizer.to_str())
    kind = described["model"].get("type")
    if kind not in KINDS:
        raise InputError(f"{source}: its tokenizer is a {kind} model; expected one of {', '.join(KINDS)}")
    tokens: dict[str, int] = tokenizer.get_vocab()
    token, number = max(tokens.items(), key=lambda item: item[1])
    if number >= rows:
        raise InputError(
            f"{source}: its tokenizer gives {token!r} the number {number}, but the model has embeddings for {rows} "
            f"tokens; expected the tokenizer that the model was trained with"
        )
    return Vocabulary(source, rows, tokens, described, tokenizer)


def renumbered(vocabularies: Sequence[Vocabulary], numbers: Mapping[str, int]) -> dict[str, Any]:
    """A tokenizer with other tokens and numbers, as ``tokenizer.json`` has it.

    Pieces, merges and scores are those of all vocabularies, the first one's coming first: what the first has keeps its
    order, so pieces of the others are put together after its own.

    Args:
        vocabularies: whose tokens are known; the first one's way to cut texts is kept.
        numbers: by token, from 0.

    Raises:
        InputError: tokenizers of different kinds, or a token that the first one's tokenizer needs and that is left out.
    """
    first = vocabularies[0]
    kinds = {one.source: one.described["model"]["type"] for one in vocabularies}
    for source, kind in kinds.items():
        if kind != kinds[first.source]:
            raise InputError(
                f"the tokenizer of {source} is a {kind} model and that of {first.source} a {kinds[first.source]} "
                f"model; expected tokenizers of one kind, or --keep first"
            )
    described = json.loads(json.dumps(first.described))
    models = [one.described["model"] for one in vocabularies]
    described["model"] = _model(described["model"], models, numbers, first.source)
    added: dict[str, dict[str, Any]] = {}
    for one in vocabularies:
        for token in one.described.get("added_tokens") or []:
            if token["content"] in numbers:
                added.setdefault(token["content"], token | {"id": numbers[token["content"]]})
    described["added_tokens"] = sorted(added.values(), key=lambda token: token["id"])
    described["post_processor"] = _numbered_anew(described.get("post_processor"), numbers, first.source)
    if isinstance(padding := described.get("padding"), dict):
        padding["pad_id"] = number_of(padding["pad_token"], numbers, first.source)
    return described


def number_of(token: str, numbers: Mapping[str, int], source: str) -> int:
    """The number of a token that a model or its tokenizer cannot do without.

    Raises:
        InputError: it is left out.
    """
    if token not in numbers:
        raise InputError(
            f"{source} needs the token {token!r}, which the vocabulary that is kept has not; expected --keep union"
        )
    return numbers[token]


def _model(
    model: dict[str, Any], models: Sequence[Mapping[str, Any]], numbers: Mapping[str, int], source: str
) -> dict[str, Any]:
    if model["type"] == "Unigram":
        scores: dict[str, float] = {}
        for one in models:
            for token, score in one["vocab"]:
                scores.setdefault(token, score)
        # Numbers are places in the list, so that tokens that are none of its pieces have one too.
        ordered = sorted(numbers, key=lambda token: numbers[token])
        pieces = [[token, scores.get(token, _NEVER)] for token in ordered]
        unknown = model.get("unk_id")
        kept = None if unknown is None else number_of(model["vocab"][unknown][0], numbers, source)
        return model | {"vocab": pieces, "unk_id": kept}
    # Added tokens too: those that are no pieces would be numbered after all pieces, whatever is said of them.
    changed = model | {"vocab": dict(numbers)}
    if model.get("unk_token") is not None:
        number_of(model["unk_token"], numbers, source)
    if model["type"] == "BPE":
        prefix = model.get("continuing_subword_prefix") or ""
        merges: dict[tuple[str, str], None] = {}
        for one in models:
            for merge in one["merges"]:
                left, right = merge.split(" ") if isinstance(merge, str) else merge
                if {left, right, left + right.removeprefix(prefix)} <= changed["vocab"].keys():
                    merges[left, right] = None
        changed["merges"] = [list(merge) for merge in merges]
    return changed


def _numbered_anew(part: Any, numbers: Mapping[str, int], source: str) -> Any:
    """A post-processor with other numbers: lists of ``ids`` beside their ``tokens``, and pairs of the two."""
    if isinstance(part, dict):
        changed = {key: _numbered_anew(value, numbers, source) for key, value in part.items()}
        if isinstance(part.get("ids"), list) and isinstance(part.get("tokens"), list):
            changed["ids"] = [number_of(token, numbers, source) for token in part["tokens"]]
        return changed
    if isinstance(part, list):
        if len(part) == 2 and isinstance(part[0], str) and isinstance(part[1], int):
            return [part[0], number_of(part[0], numbers, source)]
        return [_numbered_anew(value, numbers, source) for value in part]
    return part
