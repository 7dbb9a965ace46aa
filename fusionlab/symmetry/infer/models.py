"""The blueprint of any model: of a small one of the same structure where there is one, else of the model itself."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from fusionlab.symmetry.architectures.descriptions import architecture_name
from fusionlab.symmetry.blueprint import Blueprint, SymmetryError
from fusionlab.symmetry.infer import kept, timm_models
from fusionlab.symmetry.infer.blueprint import UnreadError, infer
from fusionlab.symmetry.infer.copies import dissolved, gathered, numbered_spaces
from fusionlab.symmetry.infer.endings import ended
from fusionlab.symmetry.infer.examples import guessed_inputs, has_all_inputs, pad_batches
from fusionlab.symmetry.infer.given_examples import given_example, refuse_kind
from fusionlab.symmetry.infer.grow import UnlikeError, grow
from fusionlab.symmetry.infer.keys import key_of
from fusionlab.symmetry.infer.leaving_out import without
from fusionlab.symmetry.infer.other_batch import OtherBatch, Wrong
from fusionlab.symmetry.infer.other_numbers import Varied, varied
from fusionlab.symmetry.infer.real_stacks import Shapes, of_stacks, real_stacks, with_real_stacks
from fusionlab.symmetry.infer.second_names import of_names, second_names
from fusionlab.symmetry.infer.shrink import NotShrunkError, Shrunk, shrink
from fusionlab.symmetry.infer.unheard import unheard
from fusionlab.symmetry.infer.unread import like_what_is_read, may_be_unread
from fusionlab.symmetry.inputs import Input

# A model that cannot be shrunk is traced as it is up to this many parameters, in a minute or two and 50 bytes for each.
MOST_PARAMETERS = 150_000_000
# What a small model says is tried on the model itself up to this many.
MOST_TRIED = 20_000_000
# A guessed input of one example has at most so many numbers: an image of 1,000 by 1,000 pixels, and more.
MOST_NUMBERS = 10_000_000
# How many examples of guessed inputs, and seeds of parameters: experts that no token chose may be chosen in the next.
TRIES = ((3, 0), (64, 0), (64, 1))
# Seeds of parameters with which a given example may lead to every expert.
SEEDS = (0, 1, 2)
# Where a blueprint is from.
ON_ITSELF = "inferred from the traced model itself"
ON_A_SMALL_ONE = "inferred from a small model of the same structure"
ON_BOTH = f"{ON_A_SMALL_ONE}, and tried on the model itself"
NUMBERED = "bases inside of heads that positions tell apart: a head of the small model stands for none of the real one"
# Blueprints by what determines them, within a process; see `kept` for those of earlier ones.
KNOWN: dict[str, Blueprint] = {}
# Of those, what was asked for with an example.
_asked: set[str] = set()


def inferred(model: nn.Module, example_inputs: Mapping[str, Tensor] | None = None) -> Blueprint:
    """The blueprint of a model whose architecture is not described.

    It follows from the model's class, config and shapes; its weights are not looked at. A module that is none of
    transformers' needs example inputs once in a process, then it is known.

    Args:
        model: on any device; not modified.
        example_inputs: at least two examples by the names of the forward's arguments; guessed for transformers models.

    Raises:
        SymmetryError: nothing is known of the model's inputs, or it cannot be traced.
    """
    refuse_kind(model)
    key = key_of(model)
    if example_inputs is not None:
        KNOWN[key] = described(model, example_inputs)
        _asked.add(key)
    elif key not in KNOWN:
        KNOWN[key] = _kept(model, key)
    return KNOWN[key]


def was_asked_for(model: nn.Module) -> bool:
    """Inference was asked for by an example of a model of this class, config and shapes."""
    return bool(_asked) and key_of(model) in _asked


def _kept(model: nn.Module, key: str) -> Blueprint:
    """The blueprint that an earlier process inferred, or else a new one, for later ones."""
    path = kept.place(model, key)
    found = None if path is None else kept.read(path, model.state_dict())
    if found is None:
        found = described(model, None)
        if path is not None:
            kept.write(path, found)
    return found


@unheard()
def described(model: nn.Module, example_inputs: Mapping[str, Tensor] | None) -> Blueprint:
    """The blueprint of a model, inferred anew; arguments and errors are those of `inferred`."""
    name = architecture_name(getattr(model, "config", model), type(model).__name__)
    if example_inputs is not None:
        return _of_itself(model, example_inputs, name)
    if not isinstance(model, transformers.PreTrainedModel):
        return _of_timm(model)
    count = sum(p.numel() for p in model.parameters())
    try:
        found = of_names(_from_a_small_one(model, name), second_names(model))
        if count <= MOST_TRIED and (wrong := _wrong(model, found)) is not None:
            raise SymmetryError(f"the space {wrong.space!r} of the small model does not fit the real one")
    except SymmetryError as error:
        if count > MOST_PARAMETERS:
            raise SymmetryError(
                f"no description of the architecture {name!r} could be inferred from a small model ({error}), and a "
                f"model of {count:,} parameters is too large to be traced itself"
            ) from error
        itself = _on_cpu(model)
        return _traced(itself, ended(itself, guessed_inputs(itself)), name).found_in(ON_ITSELF)
    return found.found_in(ON_BOTH if count <= MOST_TRIED else ON_A_SMALL_ONE)


def _of_itself(model: nn.Module, example_inputs: Any, name: str) -> Blueprint:
    """The blueprint that an example shows on the model itself."""
    itself = _on_cpu(model)
    example = varied(itself, given_example(itself, example_inputs))
    return _shown(itself, example, name).found_in(ON_ITSELF, example.notes())


def _of_timm(model: nn.Module) -> Blueprint:
    """The blueprint of a model of timm's, from images; its inputs are of the size that it was made for."""
    refusal = SymmetryError(
        f"nothing is known of the inputs of a {type(model).__name__}; expected fusionlab.blueprint(model, "
        f"example_inputs) to be called once, with a batch of at least two by the forward's argument names"
    )
    size, count = timm_models.image_size(model), sum(p.numel() for p in model.parameters())
    if size is not None and count > MOST_PARAMETERS:
        raise SymmetryError(f"a {type(model).__name__} of {count:,} parameters is too large to be traced itself")
    for batch in timm_models.images(model):
        try:
            found = _of_itself(model, batch, architecture_name(model, type(model).__name__))
        except SymmetryError as error:
            refusal = error
        else:
            assert size is not None
            return replace(found, inputs=tuple(replace(one, shape=size) for one in found.inputs))
    raise refusal


def _shown(model: nn.Module, example: Varied, name: str) -> Blueprint:
    """The blueprint that an example shows, with parameters that lead its inputs to every expert if some do."""
    for seed in SEEDS:
        with suppress(UnreadError):
            return infer(model, example.batch, name, seed, lambda t: not like_what_is_read(t.unread, t), example.drawn)
    return infer(model, example.batch, name, drawn=example.drawn)


def _from_a_small_one(model: nn.Module, name: str) -> Blueprint:
    """The blueprint of a small model of the same structure, grown to the real one's names and shapes."""
    shrunk = shrink(model)
    found = _of_small(shrunk, name)
    shapes: Shapes = {parameter: tuple(tensor.shape) for parameter, tensor in model.state_dict().items()}
    stacks = real_stacks(found.stacks, shrunk.layers)
    shrunk, shapes = with_real_stacks(shrunk, shapes, found.stacks, stacks)
    return of_stacks(_with_numbered(found, shrunk, shapes), stacks)


def _of_small(shrunk: Shrunk, name: str) -> Blueprint:
    """The blueprint of a small model, inferred once in a process: models of many sizes have the same one."""
    small = shrunk.build()
    key = f"small {name} {key_of(small)} {shrunk.inputs}"
    if key not in KNOWN:
        KNOWN[key] = _traced(small, shrunk.inputs, name)
    return KNOWN[key]


def _with_numbered(found: Blueprint, shrunk: Shrunk, shapes: Shapes) -> Blueprint:
    """The real model's blueprint, with what is numbered in the small one where that can be counted in the real one."""
    if numbered := numbered_spaces(found):
        together = gathered(found)
        try:
            return dissolved(_grown(without(together, numbered_spaces(together), NUMBERED), shrunk, shapes))
        except SymmetryError:
            found = without(found, numbered, NUMBERED)
    return _grown(found, shrunk, shapes)


def _grown(found: Blueprint, shrunk: Shrunk, shapes: Shapes) -> Blueprint:
    """The real model's blueprint; what one layer has and another of its kind has not is left out of both."""
    try:
        while True:
            try:
                return grow(found, shrunk, shapes)
            except UnlikeError as error:
                indexing = {outer for space in found.spaces.values() for outer in space.index}
                unlike = error.spaces & set(found.spaces)
                if not unlike or unlike & indexing:
                    raise
                found = without(found, unlike, f"no symmetry of {', '.join(sorted(unlike))}: {error}")
    except (IndexError, KeyError) as error:
        raise NotShrunkError(f"the small model's blueprint does not grow ({error!r})") from error


def _traced(model: nn.Module, inputs: tuple[Input, ...], name: str) -> Blueprint:
    """The blueprint that is inferred from guessed inputs: from more of them where a few leave an expert unread."""
    is_complete = has_all_inputs(model, [one.name for one in inputs])
    buffers = {name for name, _ in model.named_buffers()}
    for examples, seed in TRIES:
        batch = _batch(inputs, name, examples)
        try:
            return infer(model, batch, name, seed, lambda traced: may_be_unread(traced, is_complete, buffers))
        except UnreadError as error:
            refusal = error
            if not error.is_of_experts:
                break
    raise refusal


def _wrong(model: nn.Module, found: Blueprint) -> Wrong | None:
    """A space that does not hold on the model itself; None where all do, in every gauge."""
    other = OtherBatch(_on_cpu(model), _batch(found.inputs, found.architecture), stacks=found.stacks)
    described = (found, found.after_folding, found.without_biases())
    return next((wrong for b in described if b is not None and (wrong := other.wrong(b)) is not None), None)


def _batch(inputs: tuple[Input, ...], name: str, examples: int = TRIES[0][0]) -> dict[str, Tensor]:
    if not inputs:
        raise NotShrunkError(f"no inputs of a {name} model could be guessed from its config")
    for one in inputs:
        if math.prod(one.shape) > MOST_NUMBERS or any(size < 1 for size in one.shape):
            raise NotShrunkError(
                f"the config of a {name} model says {one.name} of shape {tuple(one.shape)}; expected inputs of at most "
                f"{MOST_NUMBERS:,} numbers"
            )
    generator = torch.Generator().manual_seed(0)
    return {one.name: one.random(examples, generator) for one in inputs}


def _on_cpu(model: nn.Module) -> nn.Module:
    """The model, or a copy of one that is elsewhere or takes no batches; without weights where they are nowhere."""
    config = copy.deepcopy(getattr(model, "config", None))
    if isinstance(config, transformers.PretrainedConfig) and pad_batches(config, type(model).__name__):
        model = copy.deepcopy(model)
        pad_batches(model.config, type(model).__name__)
    kinds = {p.device.type for p in model.parameters()}
    if kinds <= {"cpu"}:
        return model
    if "meta" in kinds:
        config = getattr(model, "config", None)
        if config is None:
            raise SymmetryError(
                f"a {type(model).__name__} on the meta device has no weights to run; expected it on the CPU"
            )
        with torch.random.fork_rng(devices=[]):
            return type(model)(copy.deepcopy(config))
    return copy.deepcopy(model).cpu()
