"""Gradients of single examples by a tensor that all of them share, from one batched backward pass.

Each rule is the formula for one operation that combines the tensor with examples: linear maps (Goodfellow, "Efficient
per-example gradient computations", 2015), patch convolutions, norms, embeddings, and whatever broadcasts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor


class NoShortcutError(Exception):
    """A shared tensor is used in a way that has no formula here."""


@dataclass(eq=False)
class GradientRule(ABC):
    """The gradient of each example by a shared tensor, at one operation.

    Attributes:
        shared: the tensor, the same for all examples: a parameter, or what was computed from parameters alone.
        examples: how many there are.
        gradient: of the operation's output, dimension 0 in the examples' order, each with equally many rows; None as
            long as it is not known.
    """

    shared: Tensor
    examples: int
    gradient: Tensor | None = field(default=None, init=False)

    def receive(self, gradient: Tensor) -> None:
        """Take the gradient of the output."""
        self.gradient = gradient

    @abstractmethod
    def add(self, total: Tensor, example: int) -> None:
        """Add the gradient of one example."""

    def add_squares(self, total: Tensor) -> None:
        """Add the squared gradients of all examples."""
        one = torch.empty_like(total)
        for example in range(self.examples):
            one.zero_()
            self.add(one, example)
            total.addcmul_(one, one)

    def _per_example(self, tensor: Tensor | None) -> Tensor:
        """Shape ``(examples, rows, ...)``."""
        assert tensor is not None, "a rule is asked for gradients before it has received that of the output"
        return tensor.unflatten(0, (self.examples, -1))


@dataclass(eq=False)
class Product(GradientRule):
    """Rows times a weight: the gradient of one example is ``G^T X``; ``X^T G`` where the weight is ``(in, out)``.

    Attributes:
        x: the input, features last.
        transposed: whether the weight's shape is ``(in, out)``.
    """

    x: Tensor
    transposed: bool = False

    def _factors(self) -> tuple[Tensor, Tensor]:
        """Shapes ``(examples, rows, weight's first dimension)`` and ``(examples, rows, all the others)``."""
        x, g = (self._per_example(tensor).flatten(1, -2) for tensor in (self.x, self.gradient))
        return (x, g) if self.transposed else (g, x)

    def add(self, total: Tensor, example: int) -> None:
        first, second = self._factors()
        total.view(len(total), -1).addmm_(first[example].T, second[example])

    def add_squares(self, total: Tensor) -> None:
        first, second = self._factors()
        flat = total.view(len(total), -1)
        if first.shape[1] == 1:
            # The square of an outer product is the outer product of squares.
            flat.addmm_(first[:, 0].square().T, second[:, 0].square())
            return
        one = torch.empty_like(flat)
        for rows, columns in zip(first, second, strict=True):
            torch.mm(rows.T, columns, out=one)
            flat.addcmul_(one, one)


@dataclass(eq=False)
class Convolution(Product):
    """A convolution is a product of the patches it reads, shape ``(examples, places, channels * height * width)``."""

    def receive(self, gradient: Tensor) -> None:
        self.gradient = gradient.flatten(2).mT


@dataclass(eq=False)
class Broadcast(GradientRule):
    """A tensor repeated to the output's shape: gradients are summed over the repetitions within one example."""

    def add(self, total: Tensor, example: int) -> None:
        rows = self._per_example(self.gradient)[example]
        if self.gradient is not None and total.ndim == self.gradient.ndim and len(total) == len(self.gradient):
            # Not repeated over the examples: each has its own rows.
            total = self._per_example(total)[example]
        total.add_(rows.sum_to_size(total.shape))

    def add_squares(self, total: Tensor) -> None:
        if total.ndim != 1:
            super().add_squares(total)
            return
        # All examples at once: most parameters are vectors, and have few numbers.
        rows = self._per_example(self.gradient).flatten(1, -2)
        total.add_(rows.sum(1).sum_to_size(self.examples, len(total)).square().sum(0))


@dataclass(eq=False)
class ChannelBias(Broadcast):
    """The bias of a convolution, whose output has its channels second."""

    def receive(self, gradient: Tensor) -> None:
        self.gradient = gradient.flatten(2).mT


@dataclass(eq=False)
class Gain(Broadcast):
    """The gain of a norm.

    Attributes:
        normalize: gives what the gain multiplies.
    """

    normalize: Callable[[], Tensor]

    def receive(self, gradient: Tensor) -> None:
        self.gradient = gradient * self.normalize()


@dataclass(eq=False)
class Lookup(GradientRule):
    """Rows of an embedding.

    Attributes:
        indices: which, shape ``(examples, ...)``.
        padding: the row that is never differentiated, or None.
    """

    indices: Tensor
    padding: int | None

    def _rows(self) -> tuple[Tensor, Tensor]:
        """Shapes ``(examples, rows)`` and ``(examples, rows, features)``; gradients of the padding row are zero."""
        indices = self._per_example(self.indices).flatten(1)
        gradients = self._per_example(self.gradient).flatten(1, -2)
        if self.padding is not None:
            gradients = gradients.masked_fill((indices == self.padding)[..., None], 0)
        return indices, gradients

    def add(self, total: Tensor, example: int) -> None:
        indices, gradients = self._rows()
        total.index_add_(0, indices[example], gradients[example])

    def add_squares(self, total: Tensor) -> None:
        indices, gradients = self._rows()
        # A row's gradients are summed within an example before they are squared: one sum for each of its rows.
        starts = len(total) * torch.arange(self.examples, device=indices.device)[:, None]
        found, places = (indices + starts).flatten().unique(return_inverse=True)
        sums = gradients.new_zeros(len(found), gradients.shape[-1])
        sums.index_add_(0, places, gradients.flatten(0, 1))
        total.index_add_(0, found % len(total), sums.square_())
