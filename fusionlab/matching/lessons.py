"""Inputs with what the end models teach on them, kept in memory and drawn at random."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn
from torch.utils.data import IterableDataset

from fusionlab.distillation import Targets, examples_are_independent, teacher_targets
from fusionlab.errors import InputError
from fusionlab.forward import LABELS
from fusionlab.matching.mixtures import mixtures

# Of one set of inputs and of the targets for it, at most this many bytes are kept.
MEMORY = 2**31
# Mixtures that the end models are shown at once.
BATCH = 128


@dataclass(frozen=True)
class Lesson:
    """One batch and what is taught on it.

    Attributes:
        batch: inputs by name, with labels or without.
        own: index of the one end model that teaches; all do if None.
        targets: what they teach; None where it is still to be computed.
    """

    batch: Mapping[str, Tensor]
    own: int | None = None
    targets: Targets | None = None

    def to(self, device: torch.device, **how: Any) -> Lesson:
        """The same on another device."""
        batch = {name: value.to(device, **how) for name, value in self.batch.items()}
        return replace(self, batch=batch, targets=None if self.targets is None else self.targets.to(device))

    def split(self, parts: int) -> list[Lesson]:
        """The same in at most `parts` parts of equal size; fewer where it has fewer examples."""
        return [self] if parts == 1 else [_at(self, index) for index in torch.arange(_size(self.batch)).chunk(parts)]


class Pool:
    """Examples of one source, in tensors by their shapes (texts of one padded length lie together).

    Args:
        lessons: batches of the source; each tensor's first dimension counts examples.
    """

    def __init__(self, lessons: Sequence[Lesson]) -> None:
        alike: dict[tuple, list[Lesson]] = {}
        for lesson in lessons:
            shapes = tuple((name, value.shape[1:], value.dtype) for name, value in lesson.batch.items())
            alike.setdefault(shapes, []).append(lesson)
        self.groups = [_joined(group) for group in alike.values()]
        self.sizes = [_size(lesson.batch) for lesson in self.groups]

    def draw(self, count: int, generator: torch.Generator) -> Iterator[Lesson]:
        """Batches of at most `count` examples for ever, in a new random order on every pass."""
        while True:
            chunks = [
                (group, index)
                for group, size in zip(self.groups, self.sizes, strict=True)
                for index in _chunks(size, count, generator)
            ]
            for position in torch.randperm(len(chunks), generator=generator).tolist():
                yield _at(*chunks[position])


class Lessons(IterableDataset):
    """A given number of steps, each with one lesson from every source.

    Processes of a distributed run draw with seeds of their own.

    Args:
        pools: one for each source.
        steps: how many.
        batch_size: examples in one step, all sources together.
        seed: of the draws.
    """

    def __init__(self, pools: Sequence[Pool], steps: int, batch_size: int, seed: int) -> None:
        self.pools, self.steps, self.seed = pools, steps, seed
        self.count = max(1, batch_size // len(pools))

    def __iter__(self) -> Iterator[list[Lesson]]:
        rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        generator = torch.Generator().manual_seed(self.seed + 1_000_003 * rank)
        streams = [pool.draw(self.count, generator) for pool in self.pools]
        for _ in range(self.steps):
            yield [next(stream) for stream in streams]


def gather(
    models: Sequence[nn.Module],
    batches: Any,
    own: int | None,
    examples: int,
    with_targets: bool,
    memory: int = MEMORY,
    known: Sequence[Tensor] | None = None,
    mixed: int = 0,
    seed: int = 0,
) -> Pool:
    """Read one source's inputs once, and let the end models say what they make of them.

    Args:
        models: the end models, in eval mode.
        batches: an iterable of batches.
        own: index of the one model that teaches; all do if None.
        examples: the most that are of use; what comes after them, or does not fit into memory, is not read.
        with_targets: whether targets are wanted. They are kept where they are no larger than what is left of memory,
            and else computed again for each lesson.
        memory: bytes.
        known: for each model which labels it knows; None where all know all.
        mixed: fewer examples than this are filled up with mixtures of them, as far as they can be mixed, are of use and
            fit into memory.
        seed: of the mixtures.

    Raises:
        InputError: no batch, or one that is no mapping of tensors.
    """
    device = next(models[0].parameters()).device
    kept: list[Lesson] = []
    seen, used, keep = 0, 0, with_targets
    for batch in batches:
        if not isinstance(batch, Mapping) or not all(isinstance(value, Tensor) for value in batch.values()):
            raise InputError(f"data holds a {type(batch).__name__}; expected batches as mappings from names to tensors")
        named = {name: value for name, value in batch.items() if name != LABELS or not with_targets}
        lesson = Lesson(named, own)
        if keep and not kept:
            # Examples are drawn anew for each step; where one's output depends on the others', so do its targets.
            keep = examples_are_independent(models[own or 0], lesson.to(device).batch)
        targets = teacher_targets(models, lesson.to(device).batch, own, known=known).to("cpu") if keep else None
        used += sum(value.nbytes for value in named.values())
        seen += _size(batch)
        if targets is not None and used + targets.values.nbytes > memory:
            # Large outputs, such as logits over a vocabulary, would crowd out the inputs.
            keep, targets = False, None
            kept = [replace(old, targets=None) for old in kept]
            used = sum(value.nbytes for old in kept for value in old.batch.values())
        elif targets is not None:
            used += targets.values.nbytes
        kept.append(replace(lesson, targets=targets))
        if seen >= examples or used > memory:
            break
    if not kept:
        raise InputError("data holds no batch; expected at least one")
    if with_targets and seen < mixed:
        # As many as are asked for, are of use and fit into what is left of memory.
        share = min(mixed, examples, memory / used * seen) / seen - 1
        kept += _mixtures(Pool(kept), share, keep, models, own, known, seed)
    return Pool(kept)


def _mixtures(
    pool: Pool,
    share: float,
    with_targets: bool,
    models: Sequence[nn.Module],
    own: int | None,
    known: Sequence[Tensor] | None,
    seed: int,
) -> Iterator[Lesson]:
    """Mixtures of a pool's examples, `share` times as many as there are."""
    device = next(models[0].parameters()).device
    generator = torch.Generator().manual_seed(seed)
    for group, size in zip(pool.groups, pool.sizes, strict=True):
        for count in _parts(round(share * size)):
            batch = mixtures(group.batch, count, generator)
            if batch is None:
                return
            lesson = Lesson(batch, own)
            targets = teacher_targets(models, lesson.to(device).batch, own, known=known) if with_targets else None
            yield replace(lesson, targets=None if targets is None else targets.to("cpu"))


def _parts(count: int) -> Iterator[int]:
    """A number in parts of at most a batch."""
    for start in range(0, count, BATCH):
        yield min(BATCH, count - start)


def _size(batch: Mapping[str, Tensor]) -> int:
    return next(iter(batch.values())).shape[0]


def _chunks(size: int, count: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    """A random order, cut into batches; a last one that is not full is left out, unless it is the only one."""
    order = torch.randperm(size, generator=generator)
    return order[: max(1, size // count) * count].split(count)


def _joined(lessons: Sequence[Lesson]) -> Lesson:
    batch = {name: torch.cat([lesson.batch[name] for lesson in lessons]) for name in lessons[0].batch}
    first = lessons[0].targets
    targets = None
    if first is not None:
        targets = replace(first, values=torch.cat([x.targets.values for x in lessons if x.targets is not None]))
    return Lesson(batch, lessons[0].own, targets)


def _at(lesson: Lesson, index: Tensor) -> Lesson:
    targets = lesson.targets
    return Lesson(
        {name: value[index] for name, value in lesson.batch.items()},
        lesson.own,
        None if targets is None else replace(targets, values=targets.values[index]),
    )
