"""Inputs of other lengths, and more or fewer of them: a model's code may do something else for those."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import torch
from torch import Tensor

# Numbers in an input that is made longer, at most: large images and long sounds would take too long.
MOST_NUMBERS = 200_000
# Lengths that are changed, at most.
MOST_LENGTHS = 4
# The shortest that anything becomes.
SHORTEST = 2

Batch = Mapping[str, Tensor]


def longer(inputs: Batch, generator: torch.Generator, is_taken: Callable[[Batch], bool]) -> dict[str, Tensor] | None:
    """Twice as many inputs of twice the lengths, as far as a model takes them; None where it takes neither."""
    return _resized(inputs, lambda size: 2 * size, generator, is_taken)


def shorter(inputs: Batch, generator: torch.Generator, is_taken: Callable[[Batch], bool]) -> dict[str, Tensor] | None:
    """Half as many inputs of half the lengths, as far as a model takes them; None where it takes neither."""
    return _resized(inputs, lambda size: min(size, max(SHORTEST, (size + 1) // 2)), generator, is_taken)


def _resized(
    inputs: Batch, to: Callable[[int], int], generator: torch.Generator, is_taken: Callable[[Batch], bool]
) -> dict[str, Tensor] | None:
    """The inputs with other sizes, each changed where the model takes it; None where it takes none."""
    wanted = [None, *[size for size in _lengths(inputs) if to(size) != size][:MOST_LENGTHS]]
    found, changed = None, frozenset[int | None]()
    # The number of inputs and the first length at once, since most models take any.
    for more in (wanted[:2], *([one] for one in wanted)):
        if changed.isdisjoint(more):
            sizes = changed.union(more)
            other = {name: _changed(x, sizes, to, generator) for name, x in inputs.items()}
            if sum(x.numel() for x in other.values()) <= MOST_NUMBERS and is_taken(other):
                found, changed = other, sizes
    return found


def _lengths(inputs: Batch) -> list[int]:
    """The sizes that lengths may be: of ids and of what stands in rows first, then all others."""
    texts = [x.shape[1] for x in inputs.values() if x.ndim == 2 and not x.is_floating_point()]
    rows = [x.shape[1] for x in inputs.values() if x.ndim == 3]
    others = [size for x in inputs.values() for size in reversed(x.shape[1:])]
    return list(dict.fromkeys([*texts, *rows, *others]))


def _changed(x: Tensor, sizes: Collection[int | None], to: Callable[[int], int], generator: torch.Generator) -> Tensor:
    """An input with some lengths changed, and the number of examples where None is among them."""
    for dim, size in enumerate(x.shape):
        if (None if dim == 0 else size) in sizes:
            # Up to the last entry, which may be the token that ends every text.
            x = x.index_select(dim, torch.arange(size - to(size), size) % max(size, 1))
    return torch.randn(x.shape, generator=generator, dtype=torch.float64) if x.is_floating_point() else x
