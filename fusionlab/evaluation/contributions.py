"""Contributions of each test example to a score: the score of any resample of the examples follows from their sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack
from torch import Tensor

from fusionlab.evaluation.formulas import FROM_PAIRS, FROM_SUMS

Numbers = NDArray[np.floating]


@dataclass(frozen=True)
class Contributions:
    """One metric of one model on one test set, example by example.

    An example is one row of a batch: an image, a sentence with all of its words, a block of text.

    Attributes:
        formula: how the metric follows, a key of `fusionlab.evaluation.formulas.FROM_SUMS` or ``FROM_PAIRS``.
        values: what each example adds, shape ``(examples, statistics)``; sparse where most of it is 0.
    """

    formula: str
    values: Numbers | csr_array

    @property
    def examples(self) -> int:
        """The number of examples."""
        return int(self.values.shape[0])

    def scores(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """The metric of resamples of the examples.

        Args:
            weights: how often each example is in each resample, shape ``(resamples, examples)``; all 1 is the metric of
                the test set itself.

        Returns:
            Shape ``(resamples,)``; not a number where the metric of a resample is not defined.
        """
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            if self.formula in FROM_PAIRS:
                pairs = np.asarray(self.values, np.float64)
                return FROM_PAIRS[self.formula](weights, pairs[:, 0], pairs[:, 1])
            return FROM_SUMS[self.formula](weights @ self.values.astype(np.float64))


@dataclass(frozen=True)
class Answers:
    """A model's answers on one test set: what each adds to every metric, and the level of chance.

    Attributes:
        contributions: by metric.
        chance: by metric, what the best answer that ignores the input scores; absent where there is no such level.
        is_constant: whether every example got the same class though the labels hold several.
    """

    contributions: dict[str, Contributions]
    chance: dict[str, float]
    is_constant: bool = False


class Record:
    """Collects what each example adds, batch by batch; in float32, so that large test sets stay small."""

    def __init__(self) -> None:
        self._parts: dict[str, tuple[str, list[Numbers | csr_array]]] = {}
        self._actual = np.zeros(0, np.int64)
        self._predicted = np.zeros(0, np.int64)

    def add(self, metric: str, formula: str, *statistics: Tensor) -> None:
        """Add the examples of a batch, in the order of all other metrics.

        Args:
            metric: its name.
            formula: see `Contributions`.
            statistics: one tensor of shape ``(examples,)`` for each statistic.
        """
        values = torch.stack([statistic.detach().float() for statistic in statistics], dim=1)
        self._put(metric, formula, values.cpu().numpy())

    def add_sparse(self, metric: str, formula: str, values: csr_array) -> None:
        """The same with a sparse matrix of shape ``(examples, statistics)``."""
        self._put(metric, formula, values)

    def count_classes(self, predicted: Tensor, actual: Tensor, classes: int) -> None:
        """Count classes, for the level of chance.

        Args:
            predicted: class numbers, shape ``(labels,)``.
            actual: true ones, of the same shape.
            classes: how many there are.
        """
        for name, found in (("_predicted", predicted), ("_actual", actual)):
            self._count(name, torch.bincount(found, minlength=classes))

    def count_labels(self, labels: Tensor) -> None:
        """The same where several labels may be right.

        Args:
            labels: 0, 1 or negative (unknown), shape ``(examples, labels)``; how often each is present and how often it
                is known are counted, shape ``(2, labels)``.
        """
        self._count("_actual", torch.stack([(labels == 1).sum(0), (labels >= 0).sum(0)]))

    def _count(self, name: str, found: Tensor) -> None:
        counts, before = found.cpu().numpy(), getattr(self, name)
        setattr(self, name, counts + before if before.size else counts)

    def answers(self, chance: Callable[[NDArray[np.int64]], dict[str, float]]) -> Answers:
        """All examples so far.

        Args:
            chance: gives the level of chance of each metric for how often each class is the true one, or for what
                `count_labels` counted.
        """
        contributions = {
            metric: Contributions(formula, _joined(parts)) for metric, (formula, parts) in self._parts.items()
        }
        is_constant = np.count_nonzero(self._predicted) == 1 < np.count_nonzero(self._actual)
        return Answers(contributions, chance(self._actual), bool(is_constant))

    def _put(self, metric: str, formula: str, values: Numbers | csr_array) -> None:
        self._parts.setdefault(metric, (formula, []))[1].append(values)


def by_example(values: Tensor, example: Tensor, examples: int) -> Tensor:
    """Sums over the labels of each example.

    Args:
        values: one number for each known label, shape ``(labels,)``.
        example: whose label it is, of the same shape.
        examples: how many there are.

    Returns:
        Shape ``(examples,)``, in float64 where the device has it: a text block holds thousands of labels.
    """
    kind = torch.float32 if values.device.type == "mps" else torch.float64
    return torch.zeros(examples, dtype=kind, device=values.device).index_add_(0, example, values.to(kind))


def class_counts(predicted: Tensor, actual: Tensor, example: Tensor, examples: int, classes: int) -> csr_array:
    """Counts for each class: how often an example has it rightly predicted, predicted, and true.

    Args:
        predicted: class numbers, shape ``(labels,)``.
        actual: true ones, of the same shape.
        example: whose labels they are, of the same shape.
        examples: how many there are.
        classes: how many there are.

    Returns:
        Shape ``(examples, 3 classes)``: hits of all classes, then predictions, then true labels.
    """
    given, true, row = (tensor.cpu().numpy() for tensor in (predicted, actual, example))
    hit = given == true
    rows = np.concatenate([row[hit], row, row])
    columns = np.concatenate([true[hit], classes + given, 2 * classes + true])
    return csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=(examples, 3 * classes))


def label_counts(predicted: Tensor, labels: Tensor) -> csr_array:
    """Flags for each label: an example has it rightly predicted, wrongly answered, and known.

    Args:
        predicted: whether each label is predicted, bool of shape ``(examples, labels)``.
        labels: 0, 1 or negative (unknown), of the same shape.

    Returns:
        Shape ``(examples, 3 labels)``: hits of all labels, then misses and false alarms, then known ones.
    """
    known, wanted = labels >= 0, labels == 1
    parts = (known & wanted & predicted, known & (wanted != predicted), known)
    return csr_array(torch.cat(parts, dim=1).cpu().numpy().astype(np.float32))


def _joined(parts: list[Numbers | csr_array]) -> Numbers | csr_array:
    sparse = [part for part in parts if isinstance(part, csr_array)]
    if sparse:
        return csr_array(vstack(sparse, format="csr"))
    return np.concatenate([part for part in parts if isinstance(part, np.ndarray)])
