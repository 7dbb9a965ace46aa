"""Fine-tuning and evaluating image classifiers of transformers and timm."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from torch import Tensor

from fusionlab.errors import InputError
from fusionlab.evaluation.scores import Scores
from fusionlab.evaluation.task_scores import make_scores
from fusionlab.tasks.class_weights import Balance, WeightedClasses
from fusionlab.tasks.fine_tuning import refuse_out_of_range
from fusionlab.tasks.image_models import fresh_model, pretrained_model
from fusionlab.tasks.predictions import class_rows
from fusionlab.types import Batch


class ImageClassification(WeightedClasses):
    """Train an image classifier with AdamW and a warm-up, and measure its loss and accuracy.

    Batches are ``{"pixel_values": (batch, channels, height, width), "labels": (batch,)}``. Logged are ``train/loss``
    (with weights and label smoothing), ``val/`` and ``test/`` with ``loss`` (without) and ``accuracy`` (0 to 1).
    """

    task = "classification"

    def __init__(
        self,
        model: str | dict[str, Any],
        num_classes: int,
        *,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.05,
        warmup_ratio: float = 0.1,
        schedule: Literal["cosine", "linear", "constant"] = "cosine",
        label_smoothing: float = 0.0,
        labels: list[str] | None = None,
        class_weights: Balance | list[float] | None = None,
    ) -> None:
        """Load or build the model.

        Args:
            model: a checkpoint path or hub id, ``timm/NAME`` for timm's pretrained weights, or the description of a
                fresh model such as ``{library: transformers, model_type: vit, hidden_size: 64}`` or
                ``{library: timm, architecture: vit_tiny_patch16_224, img_size: 32}``.
            num_classes: number of classes, at least 1. A checkpoint with another number gets a fresh head.
            learning_rate: peak learning rate of AdamW, above 0.
            weight_decay: AdamW's weight decay, 0 or more. Biases, normalisation gains, position tables and
                special tokens are not decayed.
            warmup_ratio: share of all optimizer steps over which the learning rate rises from 0, from 0 to 1.
            schedule: how the learning rate goes on after the warm-up.
            label_smoothing: from 0 (none) to below 1.
            labels: names of the classes, in order; stored with the model. Data that name theirs must name the same.
            class_weights: weights in the training loss: ``sqrt`` or ``inverse`` of how often a class occurs in the
                training data, or one number for each class.

        Raises:
            InputError: a value out of range, or a model that cannot be loaded or built.
        """
        super().__init__(learning_rate, weight_decay, warmup_ratio, schedule)
        refuse_out_of_range(("num_classes", num_classes, num_classes >= 1, "at least 1"))
        if labels is not None and len(labels) != num_classes:
            raise InputError(f"labels has {len(labels)} names, but num_classes is {num_classes}")
        self.save_hyperparameters()
        self.num_classes = num_classes
        self.class_names = labels
        self._weigh(class_weights, label_smoothing)
        if isinstance(model, str):
            self.model = pretrained_model(model, num_classes, labels)
        else:
            self.model = fresh_model(model, num_classes, labels)
        self._ready(model)

    def scores(self) -> Scores:
        """Loss and accuracy."""
        return make_scores(self.model, "classification")

    def setup(self, stage: str) -> None:
        """Compare the data module's classes with the head before anything runs."""
        super().setup(stage)
        data = self.data()
        classes = data.num_classes
        if classes is not None and classes > self.num_classes:
            raise InputError(
                f"the data set {data.name} has {classes} classes, but num_classes of the model is {self.num_classes}"
            )

    def predict_step(self, batch: Batch, batch_index: int, dataloader_idx: int = 0) -> Tensor:
        """Class probabilities, of shape ``(batch, classes)``."""
        return self(batch).float().softmax(-1)

    def prediction_rows(self, batches: Sequence[Tensor]) -> Iterator[list[Any]]:
        """The most probable class of each image, and the probability of every class."""
        return class_rows(batches, self.class_names)
