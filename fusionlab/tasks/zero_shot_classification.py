"""Fine-tuning and evaluating models that classify images by the texts of their classes."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from torch import Tensor, nn
from transformers import AutoModelForZeroShotImageClassification

from fusionlab.errors import InputError
from fusionlab.evaluation.losses import class_loss
from fusionlab.evaluation.scores import Scores
from fusionlab.evaluation.task_scores import make_scores
from fusionlab.forward import class_texts
from fusionlab.tasks.fine_tuning import FineTuning
from fusionlab.tasks.models import transformers_model
from fusionlab.tasks.predictions import class_rows
from fusionlab.types import Batch

# Parts of models that compare images with texts, by the names that transformers gives them.
_OF_TEXTS = ("text_model", "text_projection", "logit_scale", "logit_bias", "temperature")


class ZeroShotImageClassification(FineTuning):
    """Train a model that compares images with texts, such as CLIP, to find the text of an image's class.

    Batches are those of `fusionlab.data.ZeroShotImages`. Trained by cross-entropy over the similarities of an image to
    the texts of all classes; what reads texts stays as it is unless asked for, as for task vectors of CLIP (Ilharco et
    al., "Editing models with task arithmetic", 2023, appendix B). Logged are ``train/loss``, ``val/`` and ``test/``
    with ``loss`` and ``accuracy`` (0 to 1).
    """

    task = "classification"

    def __init__(
        self,
        model: str | dict[str, Any],
        *,
        learning_rate: float = 1e-5,
        weight_decay: float = 0.1,
        warmup_ratio: float = 0.1,
        schedule: Literal["cosine", "linear", "constant"] = "cosine",
        train_texts: bool = False,
    ) -> None:
        """Load or build the model.

        Args:
            model: a checkpoint path or hub id, or the description of a fresh model such as ``{model_type: clip}``.
            learning_rate: peak learning rate of AdamW, above 0.
            weight_decay: AdamW's weight decay, 0 or more. Biases, normalisation gains, position tables and
                special tokens are not decayed.
            warmup_ratio: share of all optimizer steps over which the learning rate rises from 0, from 0 to 1.
            schedule: how the learning rate goes on after the warm-up.
            train_texts: whether what reads texts, and the scale of similarities, is trained too.

        Raises:
            InputError: a value out of range, or a model that cannot be loaded or built.
        """
        super().__init__(learning_rate, weight_decay, warmup_ratio, schedule)
        self.save_hyperparameters()
        self.model = transformers_model(model, AutoModelForZeroShotImageClassification)
        if not train_texts:
            _freeze_texts(self.model)
        self._ready(model)

    def train(self, mode: bool = True) -> "ZeroShotImageClassification":
        """Go into training mode, what reads texts only where it is trained: without dropout it stays as it is."""
        super().train(mode)
        for name, part in self.model.named_children():
            if name in _OF_TEXTS and not any(parameter.requires_grad for parameter in part.parameters()):
                part.eval()
        return self

    def scores(self) -> Scores:
        """Loss and accuracy."""
        return make_scores(self.model, self.task)

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        """The mean cross-entropy over images, in nats."""
        return class_loss(output, labels)

    def forward(self, batch: Batch) -> Tensor:
        """Similarities of each image to the text of each class, of shape ``(batch, classes)``.

        Raises:
            InputError: images without the texts of classes, or a batch that does not fit the model.
        """
        if class_texts(batch) is None:
            raise InputError(
                "the batches have no texts of classes, of shape (batch, classes, tokens), beside pixel_values; "
                "expected data as fusionlab.data.ZeroShotImages gives them"
            )
        return super().forward(batch)

    def predict_step(self, batch: Batch, batch_index: int, dataloader_idx: int = 0) -> Tensor:
        """Class probabilities, of shape ``(batch, classes)``."""
        return self(batch).float().softmax(-1)

    def prediction_rows(self, batches: Sequence[Tensor]) -> Iterator[list[Any]]:
        """The most probable class of each image, and the probability of every class."""
        return class_rows(batches, self.class_names)


def _freeze_texts(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if name.split(".")[0] in _OF_TEXTS:
            parameter.requires_grad_(False)
