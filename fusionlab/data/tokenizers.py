"""Tokenizers: of a checkpoint, of the hub, or one token for each byte; and what of them decides the tokens."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import nn
from transformers import AutoTokenizer, BatchEncoding, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from fusionlab.checkpoints.hub import locate
from fusionlab.checkpoints.quiet import quiet
from fusionlab.errors import InputError, first_line

BYTES = "bytes"
# Some ten times the largest vocabulary that there is.
MOST_TOKENS = 2**24
# Files that hold the tokens of a tokenizer, or its words and pieces.
_FILES = ("tokenizer.json", "vocab.*", "*.model", "*.spm", "*.tiktoken", "tekken.json", "merges.txt")
_PAD, _END, _MASK = "<pad>", "<end>", "<mask>"


def load_tokenizer(source: str, *, words: bool = False, may_be_slow: bool = False) -> PreTrainedTokenizerBase:
    """Load a tokenizer; no code that comes with it is ever run.

    Args:
        source: a checkpoint folder, a hub id, or ``bytes`` for one token a byte, which needs no file.
        words: whether it will be given words instead of texts.
        may_be_slow: whether it need not know which word each token comes from.

    Returns:
        A tokenizer that can pad, and that knows which word each token comes from.

    Raises:
        InputError: there is none, or it cannot be loaded.
    """
    if source == BYTES:
        return byte_tokenizer()
    try:
        location = locate(source)
    except InputError as error:
        raise InputError(f"{error}; tokenizer: {BYTES} is one token a byte and needs no file") from error
    # Byte-level tokenizers take a word for the continuation of the one before unless a space is put before it.
    options: dict[str, Any] = {"add_prefix_space": True} if words else {}
    if not has_tokenizer(location):
        # The library would make a tokenizer of special tokens alone, to which every word is unknown.
        raise InputError(
            f"{source}: there is no tokenizer in it ({_FILES[0]}); expected the folder of one, or a model with one"
        )
    _refuse_far_numbers(location, source)
    try:
        with quiet(), panics_raised():
            tokenizer = AutoTokenizer.from_pretrained(str(location), trust_remote_code=False, **options)
    except Exception as error:
        # Missing files, formats and packages each have exceptions of their own.
        if any(location.glob("*.model")) and find_spec("sentencepiece") is None:
            raise InputError(
                f"{source}: its tokenizer is a SentencePiece model; expected the package sentencepiece to be installed"
            ) from error
        raise InputError(f"{source}: its tokenizer cannot be loaded ({first_line(error)})") from error
    if not tokenizer.is_fast and not may_be_slow:
        raise InputError(f"{source}: its {type(tokenizer).__name__} cannot tell which word a token comes from")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    if tokenizer.pad_token is None:
        raise InputError(f"{source}: its tokenizer has no token to pad with; expected one with a pad, eos or unk token")
    names: Any = tokenizer.model_input_names
    if not isinstance(names, list | tuple) or "input_ids" not in names or not all(isinstance(n, str) for n in names):
        raise InputError(
            f"{source}: the tokenizer's model_input_names is {str(names)[:100]!r}; expected a list with input_ids in it"
        )
    return tokenizer


def tokenizer_beside(model: nn.Module) -> PreTrainedTokenizerBase | None:
    """The tokenizer in the folder that a model of transformers was loaded from; None where none is there that loads."""
    named = getattr(getattr(model, "config", None), "name_or_path", None)
    if not isinstance(named, str) or not named or not Path(named).is_dir():
        return None
    try:
        return load_tokenizer(named)
    except InputError:
        return None


def has_tokenizer(location: Path) -> bool:
    """True if a folder holds the tokens of a tokenizer, or its words and pieces."""
    return any(next(location.glob(kind), None) for kind in _FILES)


def _refuse_far_numbers(location: Path, source: str) -> None:
    """Refuse tokens that are numbered far beyond any vocabulary: the library counts all numbers up to the largest.

    Raises:
        InputError: names the token.
    """
    path = location / "tokenizer.json"
    if not path.is_file():
        # None, or a device; the library says what is wrong with that.
        return
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        vocabulary, added = told["model"]["vocab"], told.get("added_tokens") or []
        numbered = list(vocabulary.items()) if isinstance(vocabulary, dict) else []
        numbered += [(token["content"], token["id"]) for token in added]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        # The library says what is wrong with it.
        return
    for token, number in numbered:
        if isinstance(number, int) and number >= MOST_TOKENS:
            raise InputError(
                f"{source}: its tokenizer gives {str(token)[:40]!r} the number {number}; expected numbers below "
                f"{MOST_TOKENS:,}"
            )


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with one token for each of the 256 bytes, then padding, the end of a text, and the mask."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={character: index for index, character in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([_PAD, _END, _MASK])
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token=_PAD, eos_token=_END, mask_token=_MASK)


def identity(tokenizer: PreTrainedTokenizerBase) -> str:
    """Everything that decides which tokens and columns a text becomes; equal for equal tokenizers, in any process.

    Padding and truncation are left out, but for the side that is cut: they are set anew by every call.
    """
    fast: Any = tokenizer  # the base class does not declare what every fast tokenizer has
    described = json.loads(fast.backend_tokenizer.to_str()) | {"padding": None, "truncation": None}
    special = {name: str(token) for name, token in fast.special_tokens_map.items()}
    return json.dumps([described, special, fast.truncation_side, list(fast.model_input_names)], sort_keys=True)


class PanicError(Exception):
    """The tokenizers library met a tokenizer that it has no error for."""


@contextmanager
def panics_raised() -> Iterator[None]:
    """Raise panics of the tokenizers library as ordinary exceptions, as other libraries do.

    It is written in Rust, and some damage to a tokenizer makes it panic: it prints pages on the standard error stream
    and raises what is no Exception. Standard error leads nowhere inside the block.

    Raises:
        PanicError: in place of a panic.
    """
    if sys.stderr is not None:  # as in a process without a standard error stream
        sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:
        kept = None
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise PanicError(first_line(error)) from error
    finally:
        if kept is None:
            os.close(2)
        else:
            os.dup2(kept, 2)
            os.close(kept)
        if nowhere != 2:  # the lowest number that is free
            os.close(nowhere)


def tokens_of(tokenizer: PreTrainedTokenizerBase, *texts: Any, **options: Any) -> BatchEncoding:
    """The tokens of some texts.

    Args:
        tokenizer: any.
        texts: as it takes them.
        options: of its call.

    Raises:
        InputError: the tokenizer is damaged in a way that shows only when it is used.
    """
    try:
        with panics_raised():
            return tokenizer(*texts, **options)
    except Exception as error:
        # The tokenizers library has no exceptions of its own.
        if type(error) not in (Exception, PanicError):
            raise
        name = tokenizer.name_or_path or type(tokenizer).__name__
        raise InputError(f"the tokenizer {name} cannot be used ({first_line(error)}); expected another") from error


def affixes(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """The special tokens before and after a single text.

    Raises:
        InputError: it has no tokens between them.
    """
    inner = tokens_of(tokenizer, "a", add_special_tokens=False)["input_ids"]
    whole = tokens_of(tokenizer, "a")["input_ids"]
    start = next((i for i in range(len(whole)) if whole[i : i + len(inner)] == inner), None)
    if start is None or not inner:
        name = tokenizer.name_or_path or type(tokenizer).__name__
        raise InputError(f"the tokenizer {name} has no tokens of a text between its special ones; expected some")
    return whole[:start], whole[start + len(inner) :]
