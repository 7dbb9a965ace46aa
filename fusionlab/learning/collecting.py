"""The inputs of a descent, read once, with what the end models return for them, as far as memory holds it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from fusionlab.errors import InputError
from fusionlab.examples import refuse_unlike_rows
from fusionlab.forward import DECODER_MASK, LABELS, with_decoder_tokens, written_tokens
from fusionlab.learning.batches import BATCH, DistillationBatch, ExamplePool, examples_at_once
from fusionlab.learning.distillation import Targets, outputs_alone, teacher_targets
from fusionlab.learning.mixtures import ENOUGH, mixtures
from fusionlab.learning.supplement import Like, Supplement
from fusionlab.spreading import reads_in_order, spread_loader

# Of one set of inputs and of the targets for it, at most this many bytes are kept.
MEMORY = 2**31


def collect(
    models: Sequence[nn.Module],
    batches: Iterable[Any],
    own: int | None,
    examples: int,
    with_targets: bool,
    memory: int = MEMORY,
    known: Sequence[Tensor] | None = None,
    supplement: Supplement | None = None,
    answers: int | None = None,
    weights: Sequence[float] | None = None,
) -> ExamplePool:
    """One source's inputs, read once, with what the end models return for them.

    Args:
        models: the end models, in eval mode.
        batches: of the source.
        own: index of the one model that teaches; all do if None.
        examples: the most that are of use; what comes after them, or does not fit into memory, is not read. Those of
            a loader that reads in order are from all of its data then (`fusionlab.spreading`).
        with_targets: whether targets are wanted. They are kept where they are no larger than what is left of memory,
            and else computed again for each batch.
        memory: bytes.
        known: for each model which labels it knows; None where all know all.
        supplement: what is added to few inputs that targets are wanted for, as far as it is of use and fits into
            memory; synthetic inputs only where all models teach. None for nothing.
        answers: the most that are of use, where an example has several; any number if None.
        weights: how much each model teaches, summing to 1; all alike if None.

    Raises:
        InputError: no batch, or one that is no mapping of tensors.
    """
    teaching = _Teaching(models, own, known, weights)
    given = _given(models[0], batches, own, with_targets)
    first = next(given, None)
    if first is None:
        raise InputError("data holds no batch; expected at least one")
    own_answers, is_divisible = outputs_alone(models[own or 0], first.to(teaching.device).inputs)
    examples = examples if answers is None else min(examples, max(1, answers // own_answers))
    if reads_in_order(batches) and _is_cut(batches, first, examples, memory):
        given = _given(models[0], spread_loader(batches, examples), own, with_targets)
    else:
        given = itertools.chain([first], given)
    kept: list[DistillationBatch] = []
    # Examples are drawn anew for each step; where one's output depends on the others', so do its targets.
    seen, used, keep = 0, 0, with_targets and is_divisible
    for batch in given:
        targets = teaching.targets(batch) if keep else None
        # Texts of this batch may be longer; where no targets are kept they are taken to be as long as those before.
        own_answers = own_answers if targets is None else max(1, targets.values.shape[1:-1].numel())
        used += batch.nbytes[0]
        seen += len(batch)
        if targets is not None and used + targets.values.nbytes > memory:
            # Large outputs, such as logits over a vocabulary, would crowd out the inputs.
            keep, targets = False, None
            kept = [replace(old, targets=None) for old in kept]
            used = sum(value.nbytes for old in kept for value in old.inputs.values())
        elif targets is not None:
            used += targets.values.nbytes
        kept.append(replace(batch, targets=targets, is_divisible=is_divisible, answers=own_answers))
        if seen >= examples or used > memory:
            break
    if with_targets and supplement is not None:
        kept = _supplemented(kept, supplement, teaching, examples, memory)
    return ExamplePool(kept)


def _given(
    model: nn.Module, batches: Iterable[Any], own: int | None, with_targets: bool
) -> Iterator[DistillationBatch]:
    """The batches as they are kept, still without targets; labels are of no use where there will be some."""
    for batch in batches:
        if not isinstance(batch, Mapping) or not all(isinstance(value, Tensor) for value in batch.values()):
            raise InputError(f"data holds a {type(batch).__name__}; expected batches as mappings from names to tensors")
        refuse_unlike_rows(batch)
        given = with_decoder_tokens(model, batch)
        yield DistillationBatch(_without_labels(given) if with_targets else dict(given), own)


def _without_labels(given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A batch without labels; what they say of a decoder's tokens that do not count is its mask, where it has none."""
    kept = {name: value for name, value in given.items() if name != LABELS}
    written = written_tokens(given)
    return kept if written is None else {**kept, DECODER_MASK: written.long()}


def _is_cut(loader: DataLoader[Any], first: DistillationBatch, examples: int, memory: int) -> bool:
    """True if not all of a data set will be read, as no more examples are of use, or fit into memory."""
    count: int = len(loader.dataset)  # type: ignore[arg-type]
    return count > examples or count * first.nbytes[0] > memory * len(first)


@dataclass(frozen=True)
class _Teaching:
    """The end models, the index of the one that teaches (all if None), and for each what it knows and its weight."""

    models: Sequence[nn.Module]
    own: int | None
    known: Sequence[Tensor] | None
    weights: Sequence[float] | None

    @property
    def device(self) -> torch.device:
        return next(self.models[0].parameters()).device

    def targets(self, batch: DistillationBatch) -> Targets:
        inputs = batch.to(self.device).inputs
        return teacher_targets(self.models, inputs, self.own, self.known, self.weights).to("cpu")


def _supplemented(
    kept: list[DistillationBatch], supplement: Supplement, teaching: _Teaching, examples: int, memory: int
) -> list[DistillationBatch]:
    """Few batches with what is added to them, all with targets or none."""
    seen = sum(map(len, kept))
    share = min(1, examples / ENOUGH)
    mixed = max(seen, min(supplement.mixtures, examples))
    like = None if teaching.own is not None else supplement.like
    added = 0 if like is None else round(share * supplement.synthetic_count(seen))
    inputs, targets = (sum(sizes) for sizes in zip(*(batch.nbytes for batch in kept), strict=True))
    if targets > inputs and (inputs + targets) * (seen + added) > memory * seen:
        kept, targets = [replace(batch, targets=None) for batch in kept], 0
    # As many as are asked for, are of use and fit into memory.
    room = memory * seen / (inputs + targets)
    within = min(1.0, room / (mixed + added))
    kept = [*kept, *_mixtures(ExamplePool(kept), max(0.0, within * mixed / seen - 1), teaching, supplement.seed)]
    count = min(int(within * added), int(room) - sum(map(len, kept)))
    if like is None or count < 1:
        return kept
    return [*kept, *_synthetic(kept, like, count, teaching, memory)]


def _synthetic(
    kept: Sequence[DistillationBatch], like: Like, count: int, teaching: _Teaching, memory: int
) -> Iterator[DistillationBatch]:
    """Synthetic inputs like those of the batch with the longest texts, at most so many."""
    longest = max(kept, key=lambda batch: batch.answers)
    made = like(longest.inputs, count)
    if made is None:
        return
    # Written texts have masks, which the given ones may lack, and may be shorter.
    first = {name: value[:1].to(teaching.device) for name, value in made.items()}
    like_them = replace(longest, answers=outputs_alone(teaching.models[0], first)[0])
    targets = longest.nbytes[1] / len(longest) * like_them.answers / longest.answers
    each = sum(value.nbytes for value in made.values()) / count + targets
    fitting = int((memory - sum(sum(batch.nbytes) for batch in kept)) / each)
    if fitting > 0:
        yield from _taught(like_them, {name: value[:fitting] for name, value in made.items()}, teaching)


def _mixtures(pool: ExamplePool, share: float, teaching: _Teaching, seed: int) -> Iterator[DistillationBatch]:
    """Mixtures of a pool's examples, `share` times as many as there are."""
    generator = torch.Generator().manual_seed(seed)
    for group in pool.groups:
        for start in range(0, round(share * len(group)), BATCH):
            count = min(BATCH, round(share * len(group)) - start)
            inputs = mixtures(group.inputs, count, generator)
            if inputs is None:
                return
            yield from _taught(group, inputs, teaching)


def _taught(like: DistillationBatch, inputs: Mapping[str, Tensor], teaching: _Teaching) -> Iterator[DistillationBatch]:
    """Batches of more inputs like those of a batch, with targets where it has some."""
    whole = replace(like, inputs=inputs, targets=None)
    for part in whole.split(-(-len(whole) // examples_at_once(like.answers))):
        yield part if like.targets is None else replace(part, targets=teaching.targets(part))
