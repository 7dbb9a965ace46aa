"""Losses of a model's output against labels of which some are unknown."""

import torch
from torch import Tensor
from torch.nn import functional

from fusionlab.errors import InputError
from fusionlab.forward import IGNORED


def known_rows(output: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Logits in float32 and labels where the labels are known, one row for each.

    Args:
        output: logits of shape ``(batch, ..., classes)``.
        labels: of shape ``(batch, ...)``; -100 is unknown.

    Returns:
        Logits of shape ``(known, classes)`` and labels of shape ``(known,)``.

    Raises:
        InputError: a label that is no class of the model.
    """
    labels, classes = labels.flatten(), output.shape[-1]
    known = labels != IGNORED
    kept = labels[known]
    if (wrong := (kept < 0) | (kept >= classes)).any():
        raise InputError(
            f"the data holds the label {int(kept[wrong][0])} for a model of {classes} classes; "
            f"expected labels from 0 to {classes - 1}"
        )
    return output.flatten(0, -2)[known].float(), kept


def class_loss(output: Tensor, labels: Tensor, weights: Tensor | None = None, label_smoothing: float = 0.0) -> Tensor:
    """Mean cross-entropy over known labels; 0 where none is known, or where those that are weigh nothing.

    Args:
        output: logits of shape ``(batch, ..., classes)``.
        labels: of shape ``(batch, ...)``; -100 is unknown.
        weights: of the classes, shape ``(classes,)``; all 1 if None. The mean is weighted by those of the labels.
        label_smoothing: probability that is spread over all classes, from 0 to below 1.

    Returns:
        A scalar in nats, which can be backpropagated.

    Raises:
        InputError: a label that is no class of the model.
    """
    predicted, wanted = known_rows(output, labels)
    if not len(wanted) or (weights is not None and not weights[wanted].any()):
        return predicted.sum() * 0
    # A Trainer's precision may have brought the weights to another dtype than the logits have here.
    weights = None if weights is None else weights.to(predicted)
    return functional.cross_entropy(predicted, wanted, weights, label_smoothing=label_smoothing)


def shifted(output: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Logits of shape ``(batch, tokens, vocabulary)`` beside the next token's label."""
    return output[:, :-1], labels[:, 1:]


def multilabel_loss(output: Tensor, labels: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Binary cross-entropy summed over known labels, and how many are known.

    Args:
        output: logits, shape ``(batch, classes)``.
        labels: 0, 1 or -100 (unknown), of the same shape.
        weights: weight of an absent and of a present label, shape ``(classes, 2)``; all 1 if None.

    Returns:
        Two scalars, the weighted sum and the number of known labels.

    Raises:
        InputError: another number of labels than the model has, or other values.
    """
    entries, known = multilabel_entries(output, labels, weights)
    return entries.sum(), known.sum()


def multilabel_entries(output: Tensor, labels: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The same entry by entry: binary cross-entropies, 0 where a label is unknown, and which labels are known.

    Returns:
        Two tensors of shape ``(batch, classes)``.

    Raises:
        InputError: another number of labels than the model has, or other values.
    """
    if labels.shape != output.shape:
        raise InputError(
            f"the data has {labels.shape[-1]} labels for each sample, but the model has {output.shape[-1]}"
        )
    known = labels != IGNORED
    if not ((labels == 0) | (labels == 1) | ~known).all():
        raise InputError("the data holds labels that are neither 0, 1 nor -100 for a model of several labels")
    wanted = torch.where(known, labels, 0).float()
    entries = functional.binary_cross_entropy_with_logits(output.float(), wanted, reduction="none")
    if weights is not None:
        weights = weights.to(entries)
        entries = entries * torch.where(wanted == 1, weights[:, 1], weights[:, 0])
    # Unknown entries are taken out, not multiplied by 0: infinity times 0 is not a number.
    return torch.where(known, entries, 0), known
