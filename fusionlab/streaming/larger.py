"""A model of files and the larger architecture that it is grown into, both without numbers."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from fusionlab.checkpoints.quiet import quiet
from fusionlab.checkpoints.weightless import WeightlessOfTransformers, as_written, without_memory
from fusionlab.growing.growth import is_tied_otherwise, numbers_of
from fusionlab.growing.target import larger_model
from fusionlab.streaming.classes import class_of
from fusionlab.streaming.stored import StoredModel


@dataclass(frozen=True)
class Larger:
    """A small model's files, and the larger architecture.

    Attributes:
        stored: the small model's files.
        made: the small model.
        small: the same with its output embeddings untied where the larger one's are.
        large: the larger one, as it will be written; its vectors have the numbers that its class begins with.
    """

    stored: StoredModel
    made: WeightlessOfTransformers
    small: WeightlessOfTransformers
    large: WeightlessOfTransformers

    @property
    def size(self) -> int:
        """About how many bytes the grown model takes."""
        return self.stored.main_dtype.itemsize * numbers_of(self.large.model)


def larger(stored: StoredModel, like: Any, untie: bool = False) -> Larger | None:
    """A small model's files beside the architecture that they are grown into.

    Args:
        stored: the small model's files.
        like: a config of transformers, or a model of the same class without numbers.
        untie: whether both models' output embeddings are parameters of their own.

    Returns:
        None where files hold parameters in a way that is not known to come back as it was.

    Raises:
        InputError: an unknown class, another class, or a config that makes no model.
    """
    made = class_of(stored)
    if made is None:
        return None
    like = copy.deepcopy(like)
    if untie:
        getattr(like, "config", like).tie_word_embeddings = False
    with quiet(), without_memory(vectors=True):
        large = as_written(larger_model(made.model, like).eval())
    if large is None:
        return None
    small = untied(made) if is_tied_otherwise(made.model, large.model) else made
    return Larger(stored, made, small, large)


def untied(made: WeightlessOfTransformers) -> WeightlessOfTransformers:
    """A model whose output embeddings are a parameter of their own, made of the same tensor as the input's.

    Args:
        made: a model whose output embeddings are tied.
    """
    config = copy.deepcopy(made.model.config)
    config.tie_word_embeddings = False
    with quiet(), torch.random.fork_rng(devices=[]), without_memory():
        model: PreTrainedModel = type(made.model)(config).eval()
    return WeightlessOfTransformers(model, {name: made.names[name] for name in model.state_dict()}, made.groups)
