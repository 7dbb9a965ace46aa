"""Loss and accuracy of a classifier, whatever it classifies."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchmetrics import MeanMetric
from torchmetrics.classification import MulticlassAccuracy

from fusionlab.forward import LABELS, logits

IGNORED = -100


class Scores(nn.Module):
    """Running mean loss and accuracy over batches, reduced over processes by torchmetrics.

    Labels of -100 are left out, as transformers has it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loss = MeanMetric()
        self.accuracy = MulticlassAccuracy(average="micro", ignore_index=IGNORED)

    @torch.no_grad()
    def update(self, model: nn.Module, batch: Mapping[str, Tensor]) -> None:
        """Score a model on a batch.

        Args:
            model: gives logits of shape ``(batch, ..., classes)``.
            batch: its inputs, and ``labels`` of shape ``(batch, ...)``, integers below ``classes`` or -100.
        """
        predicted = logits(model, batch).flatten(0, -2).float()
        labels = batch[LABELS].flatten()
        count = (labels != IGNORED).sum()
        self.loss.update(functional.cross_entropy(predicted, labels, ignore_index=IGNORED), count)
        self.accuracy.update(predicted.argmax(-1), labels)

    def compute(self) -> dict[str, float]:
        """``loss`` (mean cross-entropy in nats) and ``accuracy`` (0 to 1) over all batches so far."""
        return {"loss": float(self.loss.compute()), "accuracy": float(self.accuracy.compute())}

    def reset(self) -> None:
        """Forget all batches."""
        self.loss.reset()
        self.accuracy.reset()
