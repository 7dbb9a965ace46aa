"""F1 of several labels at once, where a sample's label may be unknown."""

from typing import Literal

from torch import Tensor
from torchmetrics.classification import MultilabelStatScores

from fusionlab.forward import IGNORED


class MultilabelF1(MultilabelStatScores):
    """F1 over the known entries; a label that is nowhere known does not count in the mean.

    torchmetrics' own macro F1 takes such a label for one that is always missed.

    Args:
        labels: number of labels.
        average: ``macro``, the mean of the labels' F1, or ``micro``, over all entries.
    """

    is_differentiable = False
    higher_is_better = True
    plot_lower_bound = 0.0
    plot_upper_bound = 1.0
    full_state_update = False

    def __init__(self, labels: int, average: Literal["macro", "micro"]) -> None:
        super().__init__(labels, average=None, ignore_index=IGNORED, validate_args=False)
        self.mean = average

    def update(self, predictions: Tensor, labels: Tensor) -> None:
        """Count right, wrong and missed labels.

        Args:
            predictions: whether each label is predicted, bool of shape ``(batch, labels)``.
            labels: 0, 1 or -100 (unknown), of the same shape.
        """
        super().update(predictions.long(), labels.long())

    def compute(self) -> Tensor:
        """F1 from 0 to 1; 0 for a label that is known but neither present nor predicted anywhere."""
        hits, false, correct, missed, _ = super().compute().unbind(-1)
        if self.mean == "micro":
            hits, false, correct, missed = (counts.sum(0, keepdim=True) for counts in (hits, false, correct, missed))
        known = hits + false + correct + missed > 0
        scores = 2 * hits / (2 * hits + false + missed).clamp_min(1)
        return scores[known].mean() if known.any() else scores.new_zeros(())
