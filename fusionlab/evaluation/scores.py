"""Loss and metrics of a model over batches, by what it is used for."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score
from torchmetrics.regression import PearsonCorrCoef, SpearmanCorrCoef

from fusionlab.errors import InputError
from fusionlab.evaluation.contributions import Answers, Record, by_example, class_counts, label_counts
from fusionlab.evaluation.formulas import multilabel_macro_f1
from fusionlab.evaluation.losses import known_rows, multilabel_entries, shifted
from fusionlab.evaluation.matthews import Matthews
from fusionlab.evaluation.metrics import MeanLoss, Perplexity, kind_of
from fusionlab.evaluation.multilabel_f1 import MultilabelF1
from fusionlab.evaluation.span_f1 import Mode, SpanF1
from fusionlab.forward import IGNORED, LABELS, logits

Task = Literal[
    "classification",
    "multilabel",
    "regression",
    "tokens",
    "question_answering",
    "masked_lm",
    "causal_lm",
    "seq2seq",
    "similarity",
]
Decision = Literal["probability", "logit"]
ClassMetric = Literal["accuracy", "macro_f1", "matthews"]


class Scores(nn.Module):
    """Running mean loss and accuracy over batches, reduced over processes by torchmetrics.

    Labels of -100 are unknown and left out, as transformers has it. Other tasks are subclasses;
    `fusionlab.evaluation.task_scores.make_scores` chooses.
    """

    def __init__(self, metrics: Mapping[str, Metric] | None = None) -> None:
        """Choose the metrics.

        Args:
            metrics: by name, the main one first; they take predicted and true classes. Accuracy if None.
        """
        super().__init__()
        self.loss = MeanLoss()
        self.metrics = nn.ModuleDict({"accuracy": MulticlassAccuracy(average="micro")} if metrics is None else metrics)
        self._record: Record | None = None

    @property
    def main(self) -> str:
        """Name of the metric to look at first."""
        return next(iter(self.metrics))

    @property
    def main_is_loss(self) -> bool:
        """True where a smaller value of the main metric is the better one, as of a perplexity."""
        return kind_of(dict(self._named())[self.main]).lower_is_better

    @torch.no_grad()
    def update(self, model: nn.Module, batch: Mapping[str, Tensor]) -> None:
        """Score a model on a batch.

        Args:
            model: gives logits of shape ``(batch, ..., classes)``.
            batch: its inputs, and ``labels``, of shape ``(batch, ...)`` and integers below ``classes`` or -100 unless
                the task has others.

        Raises:
            InputError: labels that the model cannot predict.
        """
        self.add(logits(model, batch), batch[LABELS])

    @torch.no_grad()
    def add(self, output: Tensor, labels: Tensor) -> None:
        """Score logits that were computed already, see `update`."""
        predicted, known = self._add_loss(output, labels)
        if len(known):
            for metric in self._all():
                metric.update(predicted.argmax(-1), known)

    def _add_loss(self, output: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Count the cross-entropy; logits and classes of the known labels, see `known_rows`."""
        predicted, known = known_rows(output, labels)
        losses = functional.cross_entropy(predicted, known, reduction="none")
        self._count_loss(losses.sum(), len(known))
        if self._record is not None:
            example = (labels != IGNORED).reshape(len(labels), -1).nonzero()[:, 0]
            counts = by_example(torch.ones_like(losses), example, len(labels))
            totals = by_example(losses, example, len(labels))
            self._record.add("loss", "mean", totals, counts)
            self._keep(self._record, predicted, known, example, totals, counts)
        return predicted, known

    def _count_loss(self, total: Tensor, count: Tensor | int) -> None:
        """Add losses by their sum and number."""
        self.loss.update(total, count)

    def keep_examples(self) -> "Scores":
        """Keep from now on what each example adds, for `answers`; the scores themselves."""
        self._record = Record()
        return self

    def answers(self) -> Answers:
        """The contributions of each example so far to each metric, in the order they came in.

        Of this process alone: several that each see all of the data have the same.

        Raises:
            ValueError: `keep_examples` was not called, or no example came.
        """
        if self._record is None:
            raise ValueError("the examples were not kept; call keep_examples first")
        return self._record.answers(self._chance)

    def _keep(
        self, record: Record, predicted: Tensor, known: Tensor, example: Tensor, losses: Tensor, counts: Tensor
    ) -> None:
        """Keep what each example adds to the metrics other than the loss.

        Args:
            record: to add it to.
            predicted: logits, shape ``(labels, classes)``.
            known: true classes, shape ``(labels,)``.
            example: whose label each is, shape ``(labels,)``.
            losses: of each example, summed over its labels, shape ``(examples,)``.
            counts: how many labels each example has, shape ``(examples,)``.
        """
        given, classes = predicted.argmax(-1), predicted.shape[-1]
        record.count_classes(given, known, classes)
        for name, metric in self._named():
            if isinstance(metric, MulticlassAccuracy):
                right = by_example((given == known).float(), example, len(counts))
                record.add(name, "mean", right, counts)
            elif isinstance(metric, MulticlassF1Score | Matthews):
                formula = "matthews" if isinstance(metric, Matthews) else "macro_f1"
                record.add_sparse(name, formula, class_counts(given, known, example, len(counts), classes))

    def _chance(self, actual: NDArray[np.int64]) -> dict[str, float]:
        """Scores of the best constant answer, from how often each class is the true one."""
        total, largest, present = int(actual.sum()), int(actual.max(initial=0)), int(np.count_nonzero(actual))
        levels = {"accuracy": largest / max(total, 1), "matthews": 0.0}
        levels["macro_f1"] = 2 * largest / max(total + largest, 1) / max(present, 1)
        return {name: levels[name] for name, _ in self._named() if name in levels}

    def compute(self) -> dict[str, float]:
        """``loss`` (mean over known labels, in nats), then the metrics, the main one first, over all batches so far."""
        return {"loss": float(self.loss.compute())} | {name: float(metric.compute()) for name, metric in self._named()}

    @property
    def is_empty(self) -> bool:
        """True as long as no label was known."""
        return not bool(self.loss.count > 0)

    def reset(self) -> None:
        """Forget all batches."""
        for metric in (self.loss, *self._all()):
            metric.reset()
        if self._record is not None:
            self._record = Record()

    def _named(self) -> list[tuple[str, Metric]]:
        return [(name, metric) for name, metric in self.metrics.items() if isinstance(metric, Metric)]

    def _all(self) -> list[Metric]:
        return [metric for _, metric in self._named()]


class MultilabelScores(Scores):
    """Binary cross-entropy, macro and micro F1 where several labels may be right and some are unknown.

    Args:
        classes: number of labels.
        decision: a label is predicted where its ``probability`` is at least 0.5, or where its ``logit`` is (a
            probability of 0.62), as the published code of the paper has it.
    """

    def __init__(self, classes: int, decision: Decision = "probability") -> None:
        super().__init__({"macro_f1": MultilabelF1(classes, "macro"), "micro_f1": MultilabelF1(classes, "micro")})
        self.threshold = 0.5 if decision == "logit" else 0.0

    @torch.no_grad()
    def add(self, output: Tensor, labels: Tensor) -> None:
        """Score logits and labels of shape ``(batch, classes)``; labels are 0, 1 or -100."""
        losses, known = multilabel_entries(output, labels)
        predicted = output.float() >= self.threshold
        self._count_loss(losses.sum(), known.sum())
        for metric in self._all():
            metric.update(predicted, labels)
        if self._record is not None:
            self._record.add("loss", "mean", losses.sum(1), known.sum(1))
            self._record.count_labels(labels)
            counts = label_counts(predicted, labels)
            for name in self.metrics:
                self._record.add_sparse(name, f"multilabel_{name}", counts)

    def _chance(self, actual: NDArray[np.int64]) -> dict[str, float]:
        """Scores of the best constant answer: all labels for macro F1, those most often present for micro F1."""
        present, known = actual if actual.size else np.zeros((2, 1), np.int64)
        macro = multilabel_macro_f1(np.concatenate([present, known - present, known])[None])[0]
        order = np.argsort(-present / np.maximum(known, 1), kind="stable")
        hits, said = present[order].cumsum(), known[order].cumsum()
        micro = (2 * hits / np.maximum(said + present.sum(), 1)).max(initial=0)
        return {"macro_f1": float(macro), "micro_f1": float(micro)}


class RegressionScores(Scores):
    """Mean squared error, Pearson and Spearman correlation of one number; labels are ``(batch,)``."""

    def __init__(self) -> None:
        super().__init__({"pearson": PearsonCorrCoef(), "spearman": SpearmanCorrCoef()})

    @torch.no_grad()
    def add(self, output: Tensor, labels: Tensor) -> None:
        """Score outputs of shape ``(batch, 1)`` or ``(batch,)``."""
        predicted, wanted = output.float().flatten(), labels.float().flatten()
        if predicted.shape != wanted.shape:
            raise InputError(
                f"the model gives {output.shape[-1]} numbers for each sample, but one was expected in a regression"
            )
        losses = (predicted - wanted).square()
        self._count_loss(losses.sum(), len(wanted))
        for metric in self._all():
            metric.update(predicted, wanted)
        if self._record is not None:
            self._record.add("loss", "mean", losses, torch.ones_like(losses))
            for name in self.metrics:
                self._record.add(name, name, predicted, wanted)

    def _chance(self, actual: NDArray[np.int64]) -> dict[str, float]:
        return dict.fromkeys(self.metrics, 0.0)


class TokenScores(Scores):
    """Cross-entropy of each word's tag, and the F1 of whole entities.

    Args:
        class_names: IOB2 tags, in the order of the classes.
        mode: what a stray ``I-`` tag is, see `SpanF1`.
    """

    def __init__(self, class_names: Sequence[str], mode: Mode = "strict") -> None:
        super().__init__({"f1": SpanF1(class_names, mode)})

    @torch.no_grad()
    def add(self, output: Tensor, labels: Tensor) -> None:
        """Score logits of shape ``(batch, tokens, classes)`` and labels of shape ``(batch, tokens)``."""
        self._add_loss(output, labels)
        spans: Any = self.metrics["f1"]
        spans.update(output.argmax(-1), labels)
        if self._record is not None:
            self._record.add("f1", "f1", *spans.sentences.unbind(1))

    def _keep(
        self, record: Record, predicted: Tensor, known: Tensor, example: Tensor, losses: Tensor, counts: Tensor
    ) -> None:
        """Nothing: spans are counted by sentence."""

    def _chance(self, actual: NDArray[np.int64]) -> dict[str, float]:
        return {"f1": 0.0}


class LanguageModelScores(Scores):
    """Cross-entropy of each token in nats, and its exponential, the perplexity.

    Args:
        shift: whether the output at one token is about the next one (causal models); labels are the tokens themselves.
    """

    def __init__(self, shift: bool) -> None:
        super().__init__({"perplexity": Perplexity()})
        self.shift = shift
        self._vocabulary = 0

    @torch.no_grad()
    def add(self, output: Tensor, labels: Tensor) -> None:
        """Score logits of shape ``(batch, tokens, vocabulary)`` and labels of shape ``(batch, tokens)``."""
        self._add_loss(*(shifted(output, labels) if self.shift else (output, labels)))

    def _count_loss(self, total: Tensor, count: Tensor | int) -> None:
        for metric in (self.loss, *self._all()):
            metric.update(total, count)

    def _keep(
        self, record: Record, predicted: Tensor, known: Tensor, example: Tensor, losses: Tensor, counts: Tensor
    ) -> None:
        self._vocabulary = predicted.shape[-1]
        record.add("perplexity", "perplexity", losses, counts)

    def _chance(self, actual: NDArray[np.int64]) -> dict[str, float]:
        return {"perplexity": float(self._vocabulary)}
