"""The agreement of models' plain mean with what the models say together of inputs, labels aside.

What the models say together is their mean output, which learned matching teaches. Where their plain mean says most of
it already, there is little to learn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from fusionlab.batch_norm import batch_norms
from fusionlab.examples import example_count, take_examples
from fusionlab.forward import forward, refusing_misfit
from fusionlab.learning.distillation import kind_of, output_of
from fusionlab.learning.points import at_point, mixed
from fusionlab.models import aliases
from fusionlab.modes import in_eval_mode
from fusionlab.spreading import spread_loader
from fusionlab.types import Batch, State

# Inputs that are looked at, and the fewest that tell anything.
INPUTS, LEAST = 512, 64


@dataclass(frozen=True)
class Agreement:
    """The share of inputs that the plain mean of some models classifies as their mean output does.

    Attributes:
        share: of the inputs, from 0 to 1.
        count: of inputs.
    """

    share: float
    count: int

    def __str__(self) -> str:
        return f"Of {self.count} inputs their plain mean classifies {self.share:.0%} as they do together."


@torch.no_grad()
def agreement_of(models: Sequence[nn.Module], batches: Iterable[Batch], most: int = INPUTS) -> Agreement | None:
    """Look at some inputs, labels aside.

    Args:
        models: two or more, on one device; not modified.
        batches: of inputs by name, which can be gone through more than once.
        most: inputs that are looked at, spread over all.

    Returns:
        The agreement; None for models of different sizes or that do not put each input into one of several classes,
        for nets with BatchNorm, and for fewer than `LEAST` inputs.
    """
    states = [model.state_dict() for model in models]
    shapes = [{name: tensor.shape for name, tensor in state.items()} for state in states]
    if any(shape != shapes[0] for shape in shapes) or any(batch_norms(model) for model in models):
        return None
    tied = aliases(states[0])
    middle = {name: tensor for name, tensor in _mean(states).items() if name not in tied}
    with in_eval_mode(*models):
        return _counted(models, middle, batches, most)


def _counted(
    models: Sequence[nn.Module], middle: Mapping[str, Tensor], batches: Iterable[Batch], most: int
) -> Agreement | None:
    same, count = 0, 0
    device = next(iter(middle.values())).device
    for batch in _spread(batches, most):
        here = {name: value.to(device) for name, value in batch.items()}
        together = [_logits(model, here) for model in models]
        if any(logits is None for logits in together):
            return None
        spoken = torch.stack([logits.float().softmax(-1) for logits in together if logits is not None]).mean(0)
        found = at_point(models[0], middle, output_of, here)
        same += int((found.argmax(-1) == spoken.argmax(-1)).sum())
        count += len(spoken)
    return Agreement(same / count, count) if count >= LEAST else None


def _spread(batches: Iterable[Batch], most: int) -> Iterator[Batch]:
    """At most so many inputs of all batches, evenly spread, as data may be sorted."""
    if isinstance(batches, DataLoader) and batches.batch_size is not None and hasattr(batches.dataset, "__len__"):
        yield from spread_loader(batches, most)
        return
    step, seen = -(-sum(map(example_count, batches)) // most), 0
    for batch in batches:
        size, first = example_count(batch), -seen % step
        seen += size
        if first < size:
            tensors = {name: value for name, value in batch.items() if isinstance(value, Tensor)}
            yield take_examples(tensors, torch.arange(first, size, step))


def _mean(states: Sequence[State]) -> dict[str, Tensor]:
    """The mean of models' parameters, in the first one's types; what is no floating-point number is the first one's."""
    shares = [1 / len(states)] * len(states)
    wide = [{name: t.float() for name, t in state.items() if t.is_floating_point()} for state in states]
    return {**states[0], **{name: tensor.to(states[0][name].dtype) for name, tensor in mixed(wide, shares).items()}}


def _logits(model: nn.Module, batch: Batch) -> Tensor | None:
    """The logits of a classifier for each input, shape ``(batch, classes)``; None of any other model."""
    with refusing_misfit():
        output = forward(model, batch)
    logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    is_classifier = isinstance(logits, Tensor) and logits.ndim == 2 and kind_of(model, output) == "classes"
    return logits if is_classifier else None
