"""A model of files brought into a smaller architecture, a part of its parameters at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fusionlab.checkpoints.weightless import Weightless, WeightlessOfTransformers
from fusionlab.growing.embedding import Embedding
from fusionlab.growing.growth import numbers_of, side_by_side
from fusionlab.growing.layers import Placement
from fusionlab.growing.no_account import is_vector, numbers_of_no_account
from fusionlab.growing.shrinking import Shrinking, cleared, folded, refuse_another_class
from fusionlab.streaming.classes import class_of
from fusionlab.streaming.coupled import Readable
from fusionlab.streaming.larger import larger
from fusionlab.streaming.remade import InGauge, RemadeParts, together
from fusionlab.streaming.stored import StoredModel
from fusionlab.symmetry.any_model import blueprint
from fusionlab.symmetry.biases import biases_along, readers_of_values
from fusionlab.symmetry.parts import parts


@dataclass(frozen=True)
class Smaller:
    """A large model's files, and the smaller architecture.

    Attributes:
        stored: the large model's files.
        made: the large model, its output embeddings untied where that was asked for.
        large: the same with its output embeddings untied where the smaller one's are too.
        small: the smaller one, as it will be written; its vectors have the numbers that its class begins with.
    """

    stored: StoredModel
    made: WeightlessOfTransformers
    large: WeightlessOfTransformers
    small: WeightlessOfTransformers

    @property
    def parameters(self) -> tuple[int, int]:
        """The numbers of both models."""
        return numbers_of(self.made.model), numbers_of(self.small.model)


def smaller(stored: StoredModel, like: Any, untied: bool = False) -> Smaller | None:
    """A large model's files beside the architecture that they are brought into, as `larger` has a small one's."""
    made = class_of(stored)
    if made is None:
        return None
    refuse_another_class(made.model, like)
    found = larger(stored, like, untied)
    return None if found is None else Smaller(stored, found.small if untied else found.made, found.small, found.large)


class NoAccount:
    """A model of which nothing but its architecture is looked at, see `numbers_of_no_account`.

    Args:
        made: the model; its vectors have the numbers that its class begins with.
    """

    def __init__(self, made: Weightless) -> None:
        self.names, self.state = made.names, made.model.state_dict()
        self.parameters = dict(made.model.named_parameters(remove_duplicate=False))

    def __call__(self, name: str) -> Tensor:
        """One of its parameters or buffers."""
        return self.read([name])[name]

    def read(self, names: Sequence[str]) -> dict[str, Tensor]:
        """Some of its parameters and buffers, by name; those that are tied are alike."""
        held = {name: self.names[name] for name in names}
        return {
            name: numbers_of_no_account(one, self.state[one]) if one in self.parameters else self.state[one]
            for name, one in held.items()
        }


def in_large(both: Smaller, places: tuple[Placement, ...], reader: Readable) -> Embedding:
    """The smaller architecture in the large model's own, whose vectors have their numbers.

    Args:
        both: the two.
        places: the layers that stay.
        reader: of the large model.
    """
    embedding = side_by_side(both.small.model, both.large.model, places)
    state = both.large.model.state_dict()
    vectors = [name for name, tensor in state.items() if tensor.is_floating_point() and is_vector(tensor)]
    state.update({name: reader.read([name])[name] for name in vectors})
    return replace(embedding, fresh=embedding.large.stacked(state))


def folded_parts(large: Weightless, reader: Readable) -> InGauge:
    """The large model's parameters in the gauge in which it is counted what layers write.

    Args:
        large: the large model.
        reader: of it.
    """
    return InGauge(reader, parts(folded(blueprint(large.model)), (), together(large)))


class ShrinkingParts(RemadeParts):
    """A large model's parameters in a smaller architecture, made when they are asked for.

    Args:
        embedding: the smaller architecture in the large model's own.
        both: the large model, and the smaller one as it will be written.
        dtypes: of the tensors in the large model's files, with their numbers counted.
    """

    def __init__(self, embedding: Embedding, both: Smaller, dtypes: Mapping[str, tuple[torch.dtype, int]]) -> None:
        described, models = cleared(embedding), (both.large, both.small)
        # Those whose value biases go through attention into the output's.
        spaces = [
            space.name
            for space in described.spaces.values()
            if biases_along(described, space) and readers_of_values(described, space)
        ]
        stacks = embedding.small.stacks
        super().__init__(described, spaces, embedding.fresh, models, dtypes, embedding.targets, stacks)

    def read(self, reader: Readable) -> InGauge:
        """The large model's parameters in the gauge that it is cut in.

        Args:
            reader: of it.
        """
        return InGauge(reader, self.parts)


class Shrunk:
    """The parameters of the shrunk model in float64; the large model's of one part are held.

    Args:
        cutting: both models.
        reader: of the large model.
        decided: what stays of it.
    """

    def __init__(self, cutting: ShrinkingParts, reader: Readable, decided: Shrinking) -> None:
        self.cutting, self.decided = cutting, decided
        self.large = cutting.read(reader)
        self.stacks: dict[str, Tensor] = {}

    @torch.no_grad()
    def __call__(self, name: str) -> Tensor:
        """A parameter or buffer of the shrunk model.

        Args:
            name: in its state dict.
        """
        if self.cutting.part_for(name) is not self.large.part:
            self.stacks = {}
        source, stack = self.cutting.source(name), self.cutting.stack_of.get(name)
        assert source is not None
        if stack is None:
            return self.decided.parameter(name, self.large[source])
        if stack not in self.stacks:
            self.stacks[stack] = self.decided.parameter(stack, self.large[source])
        return self.stacks[stack][self.decided.embedding.small.stacks[stack].index(name)]
