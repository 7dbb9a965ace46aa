"""Models of different vocabularies, brought to one."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from transformers import PreTrainedModel

from fusionlab.checkpoints.quiet import quiet
from fusionlab.dtypes import in_types, types_of
from fusionlab.errors import InputError
from fusionlab.special_tokens import number_fields
from fusionlab.vocabularies.tokens import Vocabulary, number_of, renumbered

Choice = Literal["union", "first", "intersection", "base"]
CHOICES: tuple[str, ...] = get_args(Choice)
# Of generation: tokens, or lists of them, that are not to be written, or to be.
_LISTS = ("bad_words_ids", "force_words_ids", "suppress_tokens", "begin_suppress_tokens")


@dataclass(frozen=True)
class Joined:
    """Models of one vocabulary.

    Attributes:
        models: by name.
        tokens: the token of every row; None for a row that stands for none.
        template: the vocabulary whose way to cut texts is kept.
        described: the tokenizer, as ``tokenizer.json`` has it.
        taken: by model, how many rows it has from the others, as it knows no such token.
    """

    models: Mapping[str, PreTrainedModel]
    tokens: Sequence[str | None]
    template: Vocabulary
    described: Mapping[str, Any]
    taken: Mapping[str, int]


@torch.no_grad()
def join(
    models: Mapping[str, PreTrainedModel],
    vocabularies: Mapping[str, Vocabulary],
    choice: Choice,
    base: str | None = None,
) -> Joined:
    """Models whose embeddings have one row for each token of one vocabulary.

    A row is known by its token's text. One that a model lacks is the mean of the rows of those that have it. Nothing
    else changes, so a model computes what it did on the tokens that it knew, where these are kept.

    Args:
        models: of one class; not modified.
        vocabularies: of each.
        choice: ``union`` of all tokens, in the order of the first; those of the ``first`` or of the ``base``; or the
            ``intersection``.
        base: the name of the base model, for ``base``.

    Raises:
        InputError: models of different classes, tokenizers that cannot be joined, or a token left out that one needs.
    """
    names = list(models)
    if base is None and choice == "base":
        raise InputError("keep is base, and no base was given; expected --base")
    for name in names:
        kind, wanted = type(models[name]).__name__, type(models[names[0]]).__name__
        if kind != wanted:
            raise InputError(f"{name} is a {kind} and {names[0]} a {wanted}; expected end models of one architecture")
    template = vocabularies[base if choice == "base" and base is not None else names[0]]
    tokens = _kept(vocabularies, template, choice)
    numbers = {token: number for number, token in enumerate(tokens) if token is not None}
    others = [one for one in vocabularies.values() if one is not template]
    described = renumbered([template, *(others if choice == "union" else [])], numbers)
    rows = {name: _rows(vocabularies[name], tokens, template) for name in names}
    states = {name: dict(models[name].state_dict()) for name in names}
    for parameter, dim in _over_tokens(models[names[0]]):
        old = {name: states[name].get(parameter) for name in names}
        for name, tensor in old.items():
            if tensor is None or tensor.shape[dim] != vocabularies[name].rows:
                raise InputError(f"the parameter {parameter!r} of {name} has not a row for each token; expected one")
        new = _joined([tensor for tensor in old.values() if tensor is not None], list(rows.values()), dim)
        for name, tensor in zip(names, new, strict=True):
            states[name][parameter] = tensor
    made = {name: _resized(models[name], states[name], vocabularies[name], tokens) for name in names}
    taken = {name: int((rows[name] < 0).sum()) for name in names}
    return Joined(made, tokens, template, described, taken)


def _kept(vocabularies: Mapping[str, Vocabulary], template: Vocabulary, choice: Choice) -> list[str | None]:
    """The token of every row that is kept."""
    names = template.names
    if choice == "intersection":
        every = list(vocabularies.values())
        ordered = [names[number] for number in sorted(names)]
        return [token for token in ordered if all(token in one.tokens for one in every)]
    if choice in ("first", "base"):
        return [names.get(row) for row in range(template.rows)]
    kept: list[str | None] = [names.get(row) for row in range(max(names) + 1)]
    known = set(template.tokens)
    for one in vocabularies.values():
        for _, token in sorted(one.names.items()):
            if token not in known:
                known.add(token)
                kept.append(token)
    return kept


def _rows(vocabulary: Vocabulary, tokens: Sequence[str | None], template: Vocabulary) -> Tensor:
    """A model's row for each that is kept; -1 where it has none."""
    named = vocabulary.names

    def row(number: int, token: str | None) -> int:
        if token is not None:
            return vocabulary.tokens.get(token, -1)
        is_free = number < vocabulary.rows and number not in named
        return number if is_free or vocabulary is template else -1

    return torch.tensor([row(number, token) for number, token in enumerate(tokens)])


def _over_tokens(model: PreTrainedModel) -> Iterator[tuple[str, int]]:
    """The parameters that have one entry for each token, and along which dimension: those that more tokens lengthen."""
    shapes = []
    for more in (0, 1):
        config = copy.deepcopy(model.config)
        text = config.get_text_config()
        if not isinstance(getattr(text, "vocab_size", None), int):
            raise InputError(f"a {type(model).__name__} has no vocab_size in its config; expected a model of texts")
        text.vocab_size += more
        with quiet(), torch.random.fork_rng(devices=[]), torch.device("meta"):
            shapes.append({name: tensor.shape for name, tensor in type(model)(config).state_dict().items()})
    for name, shape in shapes[0].items():
        for dim, (before, after) in enumerate(zip(shape, shapes[1][name], strict=True)):
            if before != after:
                yield name, dim


def _joined(old: Sequence[Tensor], rows: Sequence[Tensor], dim: int) -> list[Tensor]:
    """A parameter of every model with the rows that are kept, each model's own or the mean of those that have it."""
    own = [tensor.movedim(dim, 0)[index.clamp(min=0)] for tensor, index in zip(old, rows, strict=True)]
    shape = (-1, *[1] * (own[0].ndim - 1))
    has = [(index >= 0).reshape(shape) for index in rows]
    count = torch.stack(has).sum(0).clamp(min=1)
    total = sum((tensor.double() * one for tensor, one in zip(own, has, strict=True)), torch.zeros(()).double())
    mean = total / count
    return [
        torch.where(one, tensor, mean.to(tensor.dtype)).movedim(0, dim).contiguous()
        for tensor, one in zip(own, has, strict=True)
    ]


def _resized(
    model: PreTrainedModel, state: Mapping[str, Tensor], vocabulary: Vocabulary, tokens: Sequence[str | None]
) -> PreTrainedModel:
    """A model with another number of rows, whose config names special tokens by their new numbers."""
    config = copy.deepcopy(model.config)
    for part in {id(one): one for one in (config, config.get_text_config())}.values():
        _number_anew(part, vocabulary, tokens)
    config.get_text_config().vocab_size = len(tokens)
    with quiet(), torch.random.fork_rng(devices=[]):
        made = in_types(type(model)(config), types_of(model))
    made.load_state_dict(dict(state))
    if getattr(model, "generation_config", None) is not None:
        made.generation_config = copy.deepcopy(model.generation_config)
        _number_anew(made.generation_config, vocabulary, tokens)
    return made.eval()


def _number_anew(config: Any, vocabulary: Vocabulary, tokens: Sequence[str | None]) -> None:
    """Give the special tokens of a config their new numbers, in place; words of a list that are left out go.

    Raises:
        InputError: one that is left out, or that is a row of no token which another token would get.
    """
    names = vocabulary.names
    numbers = {token: number for number, token in enumerate(tokens) if token is not None}

    def anew(number: Any, field: str = "") -> Any:
        if not isinstance(number, int) or not 0 <= number < vocabulary.rows:
            return number
        if number in names:
            return number_of(names[number], numbers, vocabulary.source)
        if field and (number >= len(tokens) or tokens[number] is not None):
            raise InputError(
                f"{vocabulary.source}: its {field} is {number}, a row that its tokenizer has no token for and that the "
                f"vocabulary that is kept has not; expected a tokenizer with a token for it"
            )
        return number

    def left(words: Any) -> bool:
        each = words if isinstance(words, list) else [words]
        return all(left(one) if isinstance(one, list) else names.get(one, one) in numbers for one in each)

    def all_anew(words: Any) -> Any:
        return [all_anew(one) for one in words if left(one)] if isinstance(words, list) else anew(words)

    for field in number_fields(config):
        value = getattr(config, field)
        several = [anew(one, field) for one in value] if isinstance(value, list) else anew(value, field)
        setattr(config, field, several)
    for field in _LISTS:
        if isinstance(value := getattr(config, field, None), list):
            setattr(config, field, all_anew(value))
