"""Loss and accuracy of a classifier, whatever it classifies."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchmetrics import SumMetric
from torchmetrics.classification import MulticlassAccuracy

from fusionlab.errors import InputError
from fusionlab.forward import LABELS, logits

IGNORED = -100


class Scores(nn.Module):
    """Running mean loss and accuracy over batches, reduced over processes by torchmetrics.

    Labels of -100 are left out, as transformers has it.
    """

    def __init__(self) -> None:
        super().__init__()
        # A loss that is not a number must show, where torchmetrics' own mean would leave it out.
        self.loss = SumMetric(nan_strategy="disable")
        self.count = SumMetric(nan_strategy="disable")
        self.accuracy = MulticlassAccuracy(average="micro", ignore_index=IGNORED)

    @torch.no_grad()
    def update(self, model: nn.Module, batch: Mapping[str, Tensor]) -> None:
        """Score a model on a batch.

        Args:
            model: gives logits of shape ``(batch, ..., classes)``.
            batch: its inputs, and ``labels`` of shape ``(batch, ...)``, integers below ``classes`` or -100.

        Raises:
            InputError: a label that is no class of the model.
        """
        predicted = logits(model, batch).flatten(0, -2).float()
        labels = batch[LABELS].flatten()
        classes = predicted.shape[-1]
        known = (labels == IGNORED) | ((labels >= 0) & (labels < classes))
        if not known.all():
            raise InputError(
                f"the data holds the label {int(labels[~known][0])} for a model of {classes} classes; "
                f"expected labels from 0 to {classes - 1}"
            )
        self.loss.update(functional.cross_entropy(predicted, labels, ignore_index=IGNORED, reduction="sum"))
        self.count.update((labels != IGNORED).sum())
        self.accuracy.update(predicted.argmax(-1), labels)

    def compute(self) -> dict[str, float]:
        """``loss`` (mean cross-entropy in nats) and ``accuracy`` (0 to 1) over all batches so far."""
        loss = self.loss.compute() / self.count.compute()
        return {"loss": float(loss), "accuracy": float(self.accuracy.compute())}

    def reset(self) -> None:
        """Forget all batches."""
        self.loss.reset()
        self.count.reset()
        self.accuracy.reset()
