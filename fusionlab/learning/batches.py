"""Inputs with their distillation targets, in pools from which they are drawn at random."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.examples import example_count, take_joined
from fusionlab.forward import class_texts
from fusionlab.learning.distillation import Targets

# Examples in a step.
BATCH = 128
# Answers in a step, where an example has several: as many as 16 texts of 128 tokens have.
ANSWERS = 2048


# Not frozen: a Trainer in double precision converts the tensors of a batch in place.
@dataclass
class DistillationBatch:
    """One batch with its targets.

    Attributes:
        inputs: by name, with labels or without.
        own: index of the one end model that teaches; all do if None.
        targets: what they teach; None where it is still to be computed.
        is_divisible: whether an example's output is the same in any batch, so that the batch may be split.
        answers: how many an example has, such as one for each token of a text.
    """

    inputs: Mapping[str, Tensor]
    own: int | None = None
    targets: Targets | None = None
    is_divisible: bool = True
    answers: int = 1

    def to(self, device: torch.device, **how: Any) -> DistillationBatch:
        """The same on another device."""
        inputs = {name: value.to(device, **how) for name, value in self.inputs.items()}
        return replace(self, inputs=inputs, targets=None if self.targets is None else self.targets.to(device))

    def split(self, parts: int) -> list[DistillationBatch]:
        """The same in at most `parts` parts of equal size; fewer where it has fewer examples."""
        return [self] if parts == 1 else [_at(self, index) for index in torch.arange(len(self)).chunk(parts)]

    @property
    def nbytes(self) -> tuple[int, int]:
        """The bytes of the inputs, and of the targets that are kept."""
        targets = 0 if self.targets is None else self.targets.values.nbytes
        return sum(value.nbytes for value in self.inputs.values()), targets

    def __len__(self) -> int:
        """The number of examples."""
        return example_count(self.inputs)


class ExamplePool:
    """Examples of one source, in tensors by their shapes (texts of one padded length lie together).

    Images with the names of other classes lie apart: a batch is read with one set of these.

    Args:
        batches: of the source; each tensor's first dimension counts examples.
    """

    def __init__(self, batches: Sequence[DistillationBatch]) -> None:
        alike: dict[tuple[Any, ...], list[DistillationBatch]] = {}
        for batch in batches:
            shapes = tuple((name, value.shape[1:], value.dtype) for name, value in batch.inputs.items())
            texts = class_texts(batch.inputs)
            alike.setdefault((shapes, None if texts is None else str(texts.tolist())), []).append(batch)
        self.groups = [_joined(group) for group in alike.values()]

    def draw(self, count: int, generator: torch.Generator) -> Iterator[DistillationBatch]:
        """Batches of at most `count` examples for ever, in a new random order on every pass."""
        while True:
            chunks = [(group, index) for group in self.groups for index in _chunks(len(group), count, generator)]
            for position in torch.randperm(len(chunks), generator=generator).tolist():
                yield _at(*chunks[position])


def draws(
    pools: Sequence[ExamplePool], steps: int, batch_size: int | None, seed: int
) -> Iterator[list[DistillationBatch]]:
    """The batches of some steps, one of every source in each; the same in every process.

    Args:
        pools: one for each source.
        steps: how many.
        batch_size: examples in one step, all sources together; `examples_at_once` if None.
        seed: of the draws.
    """
    generator = torch.Generator().manual_seed(seed)
    size = batch_size or examples_at_once(max(group.answers for pool in pools for group in pool.groups))
    streams = [pool.draw(max(1, size // len(pools)), generator) for pool in pools]
    for _ in range(steps):
        yield [next(stream) for stream in streams]


def examples_at_once(answers: int) -> int:
    """The count of examples in a step where no other is asked for: 128, or fewer that have 2,048 answers together.

    More answers in a step cost more than they tell (docs/matching.md).

    Args:
        answers: that each of them has.
    """
    return max(1, min(BATCH, ANSWERS // answers))


def sources(batches: Any, count: int) -> list[tuple[int | None, Iterable[Any]]]:
    """Each source of inputs with the index of the model that teaches there, None for all.

    Args:
        batches: an iterable of batches that all end models teach on, or a sequence with one such iterable for each
            model, which alone teaches there.
        count: how many models there are.

    Raises:
        InputError: no batch, or another number of sources than of models.
    """
    iterator = iter(batches)
    first = next(iterator, None)
    if first is None:
        raise InputError("data holds no batch; expected at least one")
    # What can be gone through only once must not lose its first batch.
    whole = itertools.chain([first], iterator) if iterator is batches else batches
    if isinstance(first, Mapping):
        return [(None, whole)]
    own = list(whole)
    if len(own) != count:
        raise InputError(f"data holds {len(own)} sets of batches for {count} models; expected one for each")
    return list(enumerate(own))


def _chunks(size: int, count: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    """A random order, cut into batches; a last one that is not full is left out, unless it is the only one."""
    order = torch.randperm(size, generator=generator)
    return order[: max(1, size // count) * count].split(count)


def _joined(batches: Sequence[DistillationBatch]) -> DistillationBatch:
    inputs = {name: torch.cat([batch.inputs[name] for batch in batches]) for name in batches[0].inputs}
    first = batches[0].targets
    targets = None
    if first is not None:
        targets = replace(first, values=torch.cat([x.targets.values for x in batches if x.targets is not None]))
    return replace(batches[0], inputs=inputs, targets=targets)


def _at(batch: DistillationBatch, index: Tensor) -> DistillationBatch:
    targets = batch.targets
    return replace(
        batch,
        inputs=take_joined(batch.inputs, index),
        targets=None if targets is None else replace(targets, values=targets.values[index]),
    )
