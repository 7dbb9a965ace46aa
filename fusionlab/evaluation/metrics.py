"""The numbers that results hold, by name: which direction is better, and which of them run from 0 to 1."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score
from torchmetrics.regression import PearsonCorrCoef, SpearmanCorrCoef

from fusionlab.errors import InputError
from fusionlab.evaluation.matthews import Matthews
from fusionlab.evaluation.multilabel_f1 import MultilabelF1
from fusionlab.evaluation.span_f1 import SpanF1

DISTANCE, DISTANCE_IN_GAUGE = "distance_to_anchor", "distance_to_anchor_in_gauge"
# The mean over data sets of what each is judged by, where that is not one metric.
SCORE = "score"
DISTANCES = ("distance", DISTANCE, DISTANCE_IN_GAUGE)


class MeanLoss(Metric):
    """Mean loss over all labels; not a number if any loss is not, where torchmetrics' own would leave that one out."""

    is_differentiable = False
    higher_is_better = False
    full_state_update = False
    total: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("total", "count"):
            self.add_state(name, torch.zeros(()), dist_reduce_fx="sum")

    def update(self, total: Tensor, count: Tensor | int) -> None:
        """Add losses.

        Args:
            total: their sum.
            count: how many they are.
        """
        self.total = self.total + total
        self.count = self.count + count

    def compute(self) -> Tensor:
        """The mean; not a number where nothing was added."""
        return self.total / self.count


class Perplexity(MeanLoss):
    """Exponential of the mean loss over all tokens, in nats."""

    def compute(self) -> Tensor:
        """At least 1; not a number where nothing was added."""
        return super().compute().exp()


class MeanFraction(MeanLoss):
    """Mean of numbers from 0 to 1, one for each example, of which 1 is the best."""

    higher_is_better = True
    plot_lower_bound = 0.0
    plot_upper_bound = 1.0


@dataclass(frozen=True)
class Kind:
    """The nature of a number.

    Attributes:
        lower_is_better: True for losses and distances, False for scores.
        is_fraction: True where it runs from 0 to 1, as an accuracy does; it is shown in percent.
    """

    lower_is_better: bool
    is_fraction: bool = False


def kind_of(metric: Metric | type[Metric]) -> Kind:
    """The nature of a metric as torchmetrics tells it: its ``higher_is_better`` and the bounds of its plots.

    A metric whose ``higher_is_better`` is None counts as a score: torchmetrics says so of Pearson's correlation, whose
    ends are both extreme; of predictions and labels, 1 is the better one.
    """
    bounds = (metric.plot_lower_bound, metric.plot_upper_bound)
    return Kind(metric.higher_is_better is False, bounds == (0, 1))


KINDS: Mapping[str, Kind] = {
    "loss": kind_of(MeanLoss),
    "accuracy": kind_of(MulticlassAccuracy),
    "macro_f1": kind_of(MulticlassF1Score),
    "micro_f1": kind_of(MultilabelF1),
    "f1": kind_of(SpanF1),
    "exact_match": kind_of(MeanFraction),
    "matthews": kind_of(Matthews),
    "pearson": kind_of(PearsonCorrCoef),
    "spearman": kind_of(SpearmanCorrCoef),
    "perplexity": kind_of(Perplexity),
    SCORE: Kind(lower_is_better=False),
    "barrier": Kind(lower_is_better=True),
    **dict.fromkeys(DISTANCES, Kind(lower_is_better=True)),
}


def lower_is_better(metric: str) -> bool:
    """True where a smaller value of a metric is the better one, as of a loss.

    Raises:
        InputError: results know no such metric.
    """
    return _find(metric).lower_is_better


def is_fraction(metric: str) -> bool:
    """True where a metric runs from 0 to 1 and is shown in percent, as an accuracy is.

    Raises:
        InputError: results know no such metric.
    """
    return _find(metric).is_fraction


def _find(metric: str) -> Kind:
    if metric not in KINDS:
        raise InputError(f"results know no metric {metric!r}; expected one of {', '.join(KINDS)}")
    return KINDS[metric]
