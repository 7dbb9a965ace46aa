"""Weights that let rare classes count more in the training loss."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.evaluation.losses import class_loss
from fusionlab.tasks.fine_tuning import FineTuning, refuse_out_of_range

Balance = Literal["sqrt", "inverse"]


class WeightedClasses(FineTuning):
    """The base of classifiers: a cross-entropy whose classes may be weighted and whose labels may be smoothed.

    A subclass sets ``num_classes`` and calls `_weigh` before `_ready`.
    """

    num_classes: int
    weights: Tensor | None

    def _weigh(self, class_weights: Balance | Sequence[float] | Tensor | None, label_smoothing: float) -> None:
        """Set the weights, or what they will follow from once the data are there."""
        refuse_out_of_range(("label_smoothing", label_smoothing, 0 <= label_smoothing < 1, "from 0 to below 1"))
        self.label_smoothing = label_smoothing
        self._balance = class_weights if isinstance(class_weights, str) else None
        given = None
        if class_weights is not None and not isinstance(class_weights, str):
            class_weights = [float(weight) for weight in class_weights]
            if len(class_weights) != self.num_classes or min(class_weights) < 0:
                raise InputError(
                    f"class_weights is {class_weights}, but {self.num_classes} numbers of 0 or more were expected, "
                    f"one for each class"
                )
            given = torch.tensor(class_weights, dtype=torch.float32)
        # Not stored: weights that follow the data are counted anew when training goes on.
        self.register_buffer("weights", given, persistent=False)

    def setup(self, stage: str) -> None:
        """Compare the data with the model, and count its labels where the loss is weighted by them."""
        super().setup(stage)
        if stage != "fit" or self._balance is None:
            return
        counts = self.data().label_counts()
        if counts is None:
            raise InputError(f"class_weights is {self._balance}, but the data cannot count its labels")
        missing = self.num_classes - len(counts)
        if missing < 0:
            raise InputError(f"the data has {len(counts)} classes, but the model has {self.num_classes}")
        # Classes that the data have no name for never occur in them.
        counts = torch.cat([counts, counts.new_zeros(missing, *counts.shape[1:])])
        self.weights = balanced_weights(counts, self._balance).to(self.device)

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        """The mean over known labels, weighted; 0 where none is known."""
        return class_loss(output, labels, self.weights, self.label_smoothing)


def balanced_weights(counts: Tensor, balance: Balance) -> Tensor:
    """Weights that fall with how often a class occurs: ``mean(n) / n`` with ``n`` its count or the root of it.

    ``inverse`` is scikit-learn's ``balanced``; ``sqrt`` is what the reference code of the paper trains DeBERTa with.

    Args:
        counts: how often each class occurs, shape ``(..., classes)``; classes of a row are weighted among each other.
        balance: how strongly rare classes gain.

    Returns:
        Weights of the same shape; 1 for a class that never occurs, which then has no part in the mean.

    Raises:
        InputError: an unknown balance.
    """
    if balance not in ("sqrt", "inverse"):
        raise InputError(f"class_weights is {balance!r}, but sqrt, inverse or a list of numbers was expected")
    sizes = counts.double().sqrt() if balance == "sqrt" else counts.double()
    there = counts > 0
    mean = sizes.sum(-1, keepdim=True) / there.sum(-1, keepdim=True).clamp_min(1)
    return torch.where(there, mean / sizes.clamp_min(1), 1.0).float()
