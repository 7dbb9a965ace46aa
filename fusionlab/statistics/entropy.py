"""The entropy of a model's predictions, which says how sure it is of them without any labels."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from fusionlab.errors import InputError
from fusionlab.statistics.likelihood import ANSWERS, GAUSSIAN, predicted
from fusionlab.types import Batch


def mean_entropy(model: nn.Module, batch: Batch) -> Tensor:
    """The mean entropy of all that a model predicts for a batch, in nats; a scalar.

    Predictions are those of `fusionlab.statistics.likelihood`: one for each example, or for each token that is no
    padding and whose label, where the batch has labels, is not -100; yes or no where several labels may be right.

    Args:
        model: a classifier of sequences, images or tokens, one that finds answers in texts, or a language model.
        batch: its inputs by name.

    Raises:
        InputError: a model that predicts no labels, or a number.
    """
    prediction, family = predicted(model, batch)
    if family is GAUSSIAN:
        raise InputError(
            f"a {type(model).__name__} predicts a number, of which it is always as sure; expected classes, which have "
            f"an entropy"
        )
    outputs = prediction.outputs[prediction.counts]
    outputs = outputs.float() if outputs.dtype.itemsize < 4 else outputs
    if family is ANSWERS:
        entropies = functional.softplus(outputs) - outputs * outputs.sigmoid()
    else:
        logarithms = outputs.log_softmax(-1)
        entropies = -(logarithms.exp() * logarithms).sum(-1)
    return entropies.sum() / max(len(entropies), 1)
