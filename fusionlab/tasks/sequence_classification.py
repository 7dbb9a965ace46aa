"""Fine-tuning and evaluating models that read a text (or a pair) and give one label, several labels or a number."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from transformers import AutoModelForSequenceClassification

from fusionlab.data.tokenizers import has_tokenizer
from fusionlab.errors import InputError
from fusionlab.evaluation.losses import multilabel_loss
from fusionlab.evaluation.scores import ClassMetric, Decision, Scores
from fusionlab.evaluation.task_scores import make_scores
from fusionlab.tasks.class_weights import Balance, WeightedClasses
from fusionlab.tasks.fine_tuning import refuse_out_of_range
from fusionlab.tasks.models import label_fields, transformers_model
from fusionlab.tasks.predictions import PREDICTED, class_rows, label_rows, number_rows
from fusionlab.types import Batch

# What transformers calls the heads of models that classify a text by its last token.
_LAST_TOKEN_HEAD = "score"
_PROBLEMS = {
    "classification": "single_label_classification",
    "multilabel": "multi_label_classification",
    "regression": "regression",
}


class SequenceClassification(WeightedClasses):
    """Train a text classifier: one label (cross-entropy), several (binary cross-entropy) or a number (squared error).

    Batches hold what the tokenizer gives, each of shape ``(batch, tokens)``, and ``labels``: class numbers of shape
    ``(batch,)``, or 0 and 1 of shape ``(batch, labels)``, or numbers of shape ``(batch,)``. Labels of -100 are unknown:
    they are in neither loss nor metrics, except in a regression, where -100 is a number. Logged are ``train/loss``,
    ``val/`` and ``test/`` with ``loss`` and ``accuracy`` (or the metric chosen), ``macro_f1`` and ``micro_f1`` for
    several labels, ``pearson`` and ``spearman`` for numbers.
    """

    def __init__(
        self,
        model: str | dict[str, Any],
        labels: list[str] | None = None,
        *,
        num_classes: int | None = None,
        task: Literal["classification", "multilabel", "regression"] = "classification",
        metric: ClassMetric | None = None,
        decision: Decision = "probability",
        class_weights: Balance | list[float] | None = None,
        label_smoothing: float = 0.0,
        **training: Any,
    ) -> None:
        """Load or build the model.

        Args:
            model: a checkpoint path or hub id, or the description of a fresh model such as
                ``{model_type: bert, hidden_size: 128}``. A head of another task or for other labels is replaced.
            labels: names of the labels, in order; stored with the model. Not used for a regression.
            num_classes: number of labels where they have no names.
            task: one label is right (``classification``), several may be (``multilabel``), or a number is predicted.
            metric: of a classification: ``accuracy`` if None, ``macro_f1`` or ``matthews``.
            decision: of several labels: one is predicted where its ``probability`` is at least 0.5, or where its
                ``logit`` is, as the published code of the paper has it.
            class_weights: weights in the training loss: ``sqrt`` or ``inverse`` of how often a class occurs in the
                training data (for several labels: of how often each is present and absent), or one number for each
                label (for several labels: for where it is present).
            label_smoothing: of a classification, from 0 (none) to below 1.
            training: learning rate and schedule, see `FineTuning`.

        Raises:
            InputError: a value out of range or of no use to the task, or a model that cannot be loaded or built.
        """
        super().__init__(**training)
        classes = 1 if task == "regression" else len(labels) if labels is not None else num_classes
        if task not in _PROBLEMS:
            raise InputError(f"task is {task!r}, but one of {', '.join(_PROBLEMS)} was expected")
        if classes is None:
            raise InputError("neither labels nor num_classes was given; expected one of them")
        refuse_out_of_range(("num_classes", classes, classes >= 1, "at least 1"))
        if labels is not None and num_classes not in (None, len(labels)):
            raise InputError(f"labels has {len(labels)} names, but num_classes is {num_classes}")
        if label_smoothing and task != "classification":
            raise InputError(f"label_smoothing is {label_smoothing}, but 0 was expected for the task {task}")
        if class_weights is not None and task == "regression":
            raise InputError("class_weights was given, but a regression has no classes")
        self.save_hyperparameters()
        self.task = task
        self.metric = metric
        self.decision = decision
        self.class_names = None if task == "regression" else labels
        self.num_classes = classes
        self._weigh(class_weights, label_smoothing)
        if task == "multilabel" and self.weights is not None:
            # A number for each label is the weight of its presence; its absence weighs 1.
            self.weights = torch.stack([torch.ones_like(self.weights), self.weights], -1)
        fields = {**label_fields(classes, self.class_names), "problem_type": _PROBLEMS[task]}
        self.model = transformers_model(model, AutoModelForSequenceClassification, fields)
        self._ready(model)

    def setup(self, stage: str) -> None:
        """Compare the data module with the model; decoders without a tokenizer of their own pad as the data do.

        They classify by the last token that is no padding, so that another number of it would have them read padding.
        """
        super().setup(stage)
        tokenizer, config = self.data().tokenizer, getattr(self.model, "config", None)
        reads_last = isinstance(getattr(self.model, _LAST_TOKEN_HEAD, None), nn.Module)
        has_own = self.side_files is not None and has_tokenizer(Path(self.side_files))
        if reads_last and not has_own and tokenizer is not None and config is not None:
            config.pad_token_id = tokenizer.pad_token_id

    def scores(self) -> Scores:
        """The scores of the task."""
        names = self.class_names or [str(index) for index in range(self.num_classes)]
        return make_scores(self.model, self.task, names, metric=self.metric, decision=self.decision)

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        """The mean over known labels, weighted; 0 where none is known."""
        if self.task == "regression":
            return mse_loss(output.float().flatten(), labels.float().flatten())
        if self.task == "multilabel":
            total, known = multilabel_loss(output, labels, self.weights)
            return total / known.clamp_min(1)
        return super().loss(output, labels)

    def predict_step(self, batch: Batch, batch_index: int, dataloader_idx: int = 0) -> Tensor:
        """Probabilities of shape ``(batch, labels)``, or numbers of shape ``(batch, 1)``."""
        output = self(batch).float()
        if self.task == "regression":
            return output
        return output.sigmoid() if self.task == "multilabel" else output.softmax(-1)

    def prediction_rows(self, batches: Sequence[Tensor]) -> Iterator[list[Any]]:
        """Each text's label, labels or number, and the probabilities."""
        if self.task == "regression":
            return number_rows(batches, PREDICTED)
        if self.task == "multilabel":
            threshold = float(torch.tensor(0.5).sigmoid()) if self.decision == "logit" else 0.5
            return label_rows(batches, self.class_names, threshold)
        return class_rows(batches, self.class_names)
