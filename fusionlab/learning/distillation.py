"""Soft targets from the outputs of end models, and the loss of a student against them.

Learned matching and polish share this file. Labels are never looked at.

>>> targets = teacher_targets([a, b], batch)
>>> loss = distillation_loss(output_of(student, batch), targets, batch)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, softmax

from fusionlab.examples import doubled, take_examples
from fusionlab.forward import (
    DECODER_MASK,
    DECODER_TOKENS,
    answers_questions,
    forward,
    logits,
    logits_in,
    refusing_misfit,
)
from fusionlab.types import Batch

Kind = Literal["classes", "labels", "values"]
# Masks over tokens that a batch may carry, that of a decoder's tokens first.
MASKS = (DECODER_MASK, "attention_mask")


# Not frozen: a Trainer in double precision converts the tensors of a batch in place.
@dataclass
class Targets:
    """The targets of a student on one batch.

    Attributes:
        values: probabilities of classes or labels, or plain numbers, shape ``(batch, ..., classes)``, float32 or more.
        kind: ``classes``: one of the last dimension is right (softmax). ``labels``: each may be right by itself
            (sigmoid). ``values``: numbers, such as regression scores or hidden states.
        counts: how much each entry of the last dimension counts, shape ``(classes,)`` and 0 or 1, for labels that
            no teacher of this batch knows; None where all count.
    """

    values: Tensor
    kind: Kind
    counts: Tensor | None = None

    def to(self, device: torch.device | str) -> Targets:
        """The same targets on another device."""
        counts = None if self.counts is None else self.counts.to(device)
        return replace(self, values=self.values.to(device), counts=counts)


def output_of(model: nn.Module, batch: Batch) -> Tensor:
    """The output that a model is used for, as one tensor with gradient; both ends of the span for question answering.

    Args:
        model: on the batch's device.
        batch: inputs by name; labels are left out.

    Returns:
        Shape ``(batch, ..., classes)``; ``(batch, 2, tokens)`` for question answering.
    """
    return logits(model, batch)


@torch.no_grad()
def outputs_alone(model: nn.Module, batch: Batch) -> tuple[int, bool]:
    """The count of answers of an example, such as one for each token, and whether they are the same in any batch.

    Both ends of an answer to a question count as many as there are tokens, since all of these are looked at.

    They are not where pairs of a batch are compared: then a batch's size changes the shape of one example's output.

    Raises:
        InputError: a batch that does not fit the model, or whose examples are not one behind the other in every input.
    """
    once = take_examples(batch, torch.tensor([0]))
    with refusing_misfit():
        alone, both = (output_of(model, some).shape[1:] for some in (once, doubled(once)))
    counted = alone[-1:] if answers_questions(model) else alone[:-1]
    return max(1, counted.numel()), alone == both


@torch.no_grad()
def teacher_targets(
    models: Sequence[nn.Module],
    batch: Batch,
    own: int | None = None,
    known: Sequence[Tensor] | None = None,
    weights: Sequence[float] | None = None,
) -> Targets:
    """The teachers' mean output on one batch.

    Args:
        models: the end models, in eval mode, on the batch's device; their own functions count, so matched twins and end
            models teach the same.
        batch: inputs by name.
        own: index of the one model that teaches, where each teaches on its own inputs; all teach if None.
        known: for each model which labels it knows, bool of shape ``(classes,)``; all if None. A class that a teacher
            does not know is taken to be absent from the inputs that it teaches alone; a label (of several) that it does
            not know is left open, and so is nobody's target.
        weights: how much each model counts where all teach, summing to 1; all alike if None.

    Returns:
        Probabilities by softmax or sigmoid, or the mean of the outputs where they are plain numbers.

    Raises:
        ValueError: no model.
    """
    if not models:
        raise ValueError("no teacher was given")
    equal = [1 / len(models)] * len(models)
    shares = (weights or equal) if own is None else [float(place == own) for place in range(len(models))]
    total: Tensor | None = None
    mass: Tensor | None = None
    kind: Kind = "values"
    for index, share in enumerate(shares):
        if not share:
            continue
        output = forward(models[index], batch)
        values = logits_in(output, batch)
        values = values.to(torch.promote_types(values.dtype, torch.float32))
        kind = kind_of(models[index], output)
        knows = torch.ones_like(values[(0,) * (values.ndim - 1)])
        if known is not None and kind != "values":
            knows = known[index].to(values)
        if kind == "classes":
            values = values.masked_fill(knows == 0, -torch.inf).softmax(-1)
        elif kind == "labels":
            values = values.sigmoid()
        total = share * knows * values if total is None else total + share * knows * values
        mass = share * knows if mass is None else mass + share * knows
    assert total is not None
    assert mass is not None
    if known is None or kind == "values":
        return Targets(total, kind)
    # Averaged over those that know the label only.
    mean = total / mass.clamp_min(torch.finfo(mass.dtype).tiny)
    if kind == "classes":
        return Targets(mean / mean.sum(-1, keepdim=True), kind)
    return Targets(mean, kind, (mass > 0).to(mean))


def distillation_loss(output: Tensor, targets: Targets, batch: Batch, temperature: float = 1.0) -> Tensor:
    """The loss of a student's output against its targets.

    Soft cross-entropy for classes and labels (Hinton, Vinyals and Dean, "Distilling the knowledge in a neural network",
    2015), the mean squared error for plain numbers. Where the output has one row for each token, tokens that the
    attention mask hides do not count.

    Args:
        output: the student's, from `output_of`.
        targets: of the same shape.
        batch: the inputs, for their masks.
        temperature: above 0; logits are divided by it, targets are raised to its inverse (those of a label and of its
            absence), and the loss is scaled by its square so that gradients keep their size. Of no effect on plain
            numbers.

    Returns:
        A scalar: the mean over examples (over tokens where each has its own output).
    """
    output = output.to(targets.values.dtype)
    if targets.kind == "classes":
        loss = _classes_loss(output, targets.values, temperature)
    elif targets.kind == "labels":
        entries = _labels_loss(output, targets.values, temperature)
        counts = torch.ones_like(output[(0,) * (output.ndim - 1)]) if targets.counts is None else targets.counts
        loss = (entries * counts).sum(-1) / counts.sum().clamp_min(1)
    else:
        loss = (output - targets.values).square().mean(-1)
    mask = token_mask(loss, batch)
    if mask is None:
        return loss.mean()
    return (loss * mask).sum() / mask.sum().clamp_min(1)


def rows_that_count(output: Tensor, batch: Batch) -> Tensor:
    """The number of rows of an output that `distillation_loss` is the mean of.

    Args:
        output: from `output_of`.
        batch: the inputs, for their masks.
    """
    rows = output[..., 0]
    mask = token_mask(rows, batch)
    return torch.tensor(float(rows.numel()), device=output.device) if mask is None else mask.sum().float()


def kind_of(model: nn.Module, output: Any) -> Kind:
    """The kind of target that a model's output makes.

    Args:
        model: its config says whether several labels may be right, or whether it is a regression.
        output: what it returned.
    """
    if isinstance(output, Tensor | tuple):
        return "values" if getattr(model, "num_classes", None) == 0 else "classes"
    if getattr(output, "logits", None) is None:
        named = ("start_logits", "logits_per_image")
        return "classes" if any(getattr(output, name, None) is not None for name in named) else "values"
    problem = getattr(getattr(model, "config", None), "problem_type", None)
    if problem == "multi_label_classification":
        return "labels"
    return "values" if problem == "regression" or output.logits.shape[-1] == 1 else "classes"


def token_mask(rows: Tensor, batch: Batch) -> Tensor | None:
    """The mask of rows ``(batch, tokens)`` whose tokens count, as numbers; None where no mask of the batch fits."""
    # Tokens that a decoder writes are not those that the encoder's mask is of.
    for name in MASKS[:1] if DECODER_TOKENS in batch else MASKS:
        if name in batch and rows.ndim == 2 and batch[name].shape == rows.shape:
            return batch[name].to(rows)
    return None


def _classes_loss(output: Tensor, probabilities: Tensor, temperature: float) -> Tensor:
    if temperature != 1:
        logarithms = probabilities.clamp_min(1e-12).log().masked_fill(probabilities == 0, -torch.inf)
        probabilities = softmax(logarithms / temperature, -1)
    return -(probabilities * (output / temperature).log_softmax(-1)).sum(-1) * temperature**2


def _labels_loss(output: Tensor, probabilities: Tensor, temperature: float) -> Tensor:
    if temperature != 1:
        # A probability that was rounded to one has lost its logit; it counts as the largest below.
        before = probabilities.logit(torch.finfo(probabilities.dtype).eps)
        probabilities = (before / temperature).sigmoid()
    entries = binary_cross_entropy_with_logits(output / temperature, probabilities, reduction="none")
    return entries * temperature**2
