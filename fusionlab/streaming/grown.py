"""A model of files grown into a larger architecture, a part of its parameters at a time."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fusionlab.checkpoints.weightless import Weightless
from fusionlab.growing.axes import Widening
from fusionlab.growing.embedding import Embedding
from fusionlab.streaming.coupled import Readable
from fusionlab.streaming.remade import InGauge, RemadeParts


class GrowingParts(RemadeParts):
    """A small model's parameters in a larger architecture, made when they are asked for.

    Args:
        embedding: both models side by side, without numbers.
        small: the small model.
        large: the larger one, as it will be written.
        dtypes: of the tensors in the small model's files, with their numbers counted.
    """

    def __init__(
        self,
        embedding: Embedding,
        small: Weightless,
        large: Weightless,
        dtypes: Mapping[str, tuple[torch.dtype, int]],
    ) -> None:
        self.embedding, models, stacks = embedding, (small, large), embedding.large.stacks
        super().__init__(embedding.small, (), embedding.state, models, dtypes, embedding.sources, stacks)


class Grown:
    """The parameters of the grown model in float64; the small model's of one part are held.

    Args:
        growing: both models.
        reader: of the small model.
        widening: the maps.
    """

    def __init__(self, growing: GrowingParts, reader: Readable, widening: Widening) -> None:
        self.growing, self.widening = growing, widening
        self.small = InGauge(reader, growing.parts)
        self.stacks: dict[str, Tensor] = {}

    @torch.no_grad()
    def __call__(self, name: str) -> Tensor:
        """A parameter or buffer of the grown model.

        Args:
            name: in its state dict.
        """
        embedding, stack = self.growing.embedding, self.growing.stack_of.get(name)
        if (part := self.growing.part_for(name)) is not None and part is not self.small.part:
            self.stacks = {}
        source = self.growing.source(name)
        tensor = None if source is None else self.small[source]
        if stack is None:
            return embedding.parameter(name, tensor, self.widening)
        if source is None:
            return embedding.parameter(stack, None, self.widening)[0]
        if stack not in self.stacks:
            self.stacks[stack] = embedding.parameter(stack, tensor, self.widening)
        return self.stacks[stack][embedding.large.stacks[stack].index(name)]
