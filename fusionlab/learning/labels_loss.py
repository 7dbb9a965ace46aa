"""The loss on labels that data hold, where learning goes by these."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fusionlab.errors import InputError
from fusionlab.evaluation.losses import multilabel_loss
from fusionlab.forward import LABELS, answers_questions
from fusionlab.learning.distillation import output_of


def labels_loss(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """The loss on labels: a transformers model's own; cross-entropy for any other, and for both ends of answers.

    Of several labels the binary cross-entropy of those that are known.

    Raises:
        InputError: a batch without labels.
    """
    if LABELS not in batch:
        raise InputError("target is 'labels', but the data holds none; expected batches with labels")
    if getattr(getattr(model, "config", None), "problem_type", None) == "multi_label_classification":
        total, known = multilabel_loss(output_of(model, batch), batch[LABELS])
        return total / known.clamp(min=1)
    if hasattr(model, "main_input_name") and not answers_questions(model):
        return model(**batch).loss
    return cross_entropy(output_of(model, batch).flatten(0, -2), batch[LABELS].flatten())
