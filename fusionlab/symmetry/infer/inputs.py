"""Inputs of a real model from those of the small one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from fusionlab.symmetry.blueprint import SymmetryError
from fusionlab.symmetry.infer.interpreter import Reading
from fusionlab.symmetry.infer.shrink import Shrunk
from fusionlab.symmetry.inputs import Input

# Fields that an input's shape may follow; lengths of texts follow none.
_SHAPES = re.compile(r"image_size|mel_bins|source_positions|patches|hidden_size|d_model")
# Those that the sides of an image follow.
_SIDES = re.compile(r"image_size")
# Which patches are hidden: no table is looked up with it.
MASKED = "bool_masked_pos"
_VOCABULARY = re.compile(r"vocab_size")


def grown_inputs(inputs: tuple[Input, ...], shrunk: Shrunk) -> tuple[Input, ...]:
    """The real model's inputs: shapes and vocabularies follow the fields of the config that they equal.

    Lengths of texts are at most those that the real model has positions for. Images among words, and inputs that are
    the same for every example or have no dimension of their own for it, are those that were guessed for the real one.

    Raises:
        SymmetryError: a number that fields of the config give two meanings.
    """
    guessed = {one.name: one for one in shrunk.real_inputs}
    real = {name: one for name, one in guessed.items() if _is_of_one_model(one)}
    if unplaced := [one.name for one in inputs if _is_of_one_model(one) and one.name not in real]:
        raise SymmetryError(f"nothing says where an image's features are placed in the real model's {unplaced[0]!r}")
    return tuple(
        real[given.name]
        if given.name in real
        else replace(
            given,
            shape=tuple(
                _real(size, _SIDES if len(given.shape) > 2 else _SHAPES, shrunk.hints, given.name)
                for size in given.shape
            )
            if given.vocabulary is None or given.vocabulary <= 2
            else _no_longer(given, shrunk),
            vocabulary=given.vocabulary and _real(given.vocabulary, _VOCABULARY, shrunk.hints, given.name),
            last=None if given.last is None else shrunk.tokens.get(given.last, given.last),
        )
        for given in inputs
    )


def _no_longer(given: Input, shrunk: Shrunk) -> tuple[int, ...]:
    """The shape of a text, no longer than the real model takes, where its guess is shorter than the small model's."""
    small, real = ({one.name: one.shape for one in inputs} for inputs in (shrunk.inputs, shrunk.real_inputs))
    pair = small.get(given.name, ()), real.get(given.name, ())
    if not len(pair[0]) == len(pair[1]) == len(given.shape):
        return tuple(given.shape)
    return tuple(min(size, r) if r < s else size for size, s, r in zip(given.shape, *pair, strict=True))


def _is_of_one_model(one: Input) -> bool:
    """An input that follows from a model's config in ways of its own."""
    return one.placed is not None or one.numbers is not None or one.is_stacked


def _real(size: int, fields: re.Pattern[str], hints: Mapping[str, tuple[int, int]], name: str) -> int:
    found = {real for field, (small, real) in hints.items() if small == size and fields.search(field)}
    if len(found) > 1:
        raise SymmetryError(f"the config gives the size {size} of the small model's input {name!r} several meanings")
    return found.pop() if found else size


def inputs_of(reading: Reading, drawn: Mapping[str, Input]) -> tuple[Input, ...]:
    """Inputs of a traced model: numbers, token ids of which it is known how many there are, and what never differs.

    Args:
        reading: the model.
        drawn: what was drawn in place of inputs that were the same for all.
    """
    out = []
    # As many examples as there are rows of ids or sizes; what is one long is the same for all.
    rows = [len(x) for x in reading.traced.inputs.values() if x.ndim == 2 and not x.is_floating_point()]
    examples = min((count for count in rows if count > 1), default=1)
    for name, tensor in reading.traced.inputs.items():
        if tensor.is_floating_point():
            each, left = divmod(len(tensor), examples) if tensor.ndim and examples > 1 else (1, 0)
            is_stacked = each > 1 and left == 0
            shape = (each, *tensor.shape[1:]) if is_stacked else tuple(tensor.shape[1:])
            out.append(Input(name, shape, is_stacked=is_stacked))
        elif name == MASKED:
            out.append(Input(name, tuple(tensor.shape[1:]), vocabulary=2))
        elif name in reading.notes.vocabularies:
            ends = tensor[:, -1] if tensor.ndim > 1 else tensor
            is_last = tensor.ndim > 1 and len(tensor) > 1 and int((tensor == ends[0]).sum()) == len(tensor)
            last = int(ends[0]) if is_last and bool((ends == ends[0]).all()) else None
            vocabulary, placed = reading.notes.vocabularies[name], _placed(tensor)
            out.append(Input(name, tuple(tensor.shape[1:]), vocabulary, last, placed))
        elif name in drawn:
            out.append(drawn[name])
        elif tensor.ndim and len(tensor) == examples > 1 and bool((tensor == tensor[:1]).all()):
            out.append(Input(name, tuple(tensor.shape[1:]), numbers=tuple(tensor[0].flatten().tolist())))
    return tuple(out)


def _placed(ids: Tensor) -> tuple[int, int] | None:
    """A token that stands several times behind the first of every row and nowhere else, and how often."""
    if ids.ndim != 2 or ids.shape[1] < 3:
        return None
    token = ids[0, 1]
    count = int((ids[0, 1:] == token).to(torch.int).cumprod(0).sum())
    everywhere = bool((ids[:, 1 : 1 + count] == token).all()) and int((ids == token).sum()) == count * len(ids)
    return (int(token), count) if count > 1 and len(ids) > 1 and everywhere else None
