"""Fine-tuning and evaluating image classifiers of transformers and timm."""

import math
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torchmetrics.classification import MulticlassAccuracy
from transformers import get_scheduler

from fusionlab import checkpoints
from fusionlab.errors import InputError
from fusionlab.forward import LABELS, logits
from fusionlab.tasks.image_models import fresh_model, pretrained_model

Batch = dict[str, Tensor]

_SCHEDULES = {"cosine": "cosine", "linear": "linear", "constant": "constant_with_warmup"}
# Single vectors and tables that are added to the residual stream: decaying them has no scale to work against.
_EMBEDDINGS = {
    "cls_token", "dist_token", "distillation_token", "mask_token", "pos_embed", "position_embeddings",
}  # fmt: skip


class ImageClassification(LightningModule):
    """Train an image classifier with AdamW and a warm-up, and measure its loss and accuracy.

    Batches are ``{"pixel_values": (batch, channels, height, width), "labels": (batch,)}``. Logged are ``train/loss``
    (with label smoothing), ``val/loss`` (without), ``val/accuracy`` and ``test/accuracy`` (0 to 1).
    Precision, devices and strategy are the Trainer's.
    """

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
            labels: names of the classes, in order; stored with the model.

        Raises:
            InputError: a value out of range, or a model that cannot be loaded or built.
        """
        super().__init__()
        _refuse_out_of_range(num_classes, learning_rate, weight_decay, warmup_ratio, label_smoothing)
        if labels is not None and len(labels) != num_classes:
            raise InputError(f"labels has {len(labels)} names, but num_classes is {num_classes}")
        self.save_hyperparameters()
        self.source = model if isinstance(model, str) else None
        self.num_classes = num_classes
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.warmup_ratio = warmup_ratio
        self.schedule = schedule
        self.label_smoothing = label_smoothing
        self.model: nn.Module
        if isinstance(model, str):
            self.model = pretrained_model(model, num_classes, labels)
        else:
            self.model = fresh_model(model, num_classes, labels)
        # from_pretrained hands models over in eval mode, where dropout is off.
        self.model.train()
        self.val_accuracy = MulticlassAccuracy(num_classes, average="micro")
        self.test_accuracy = MulticlassAccuracy(num_classes, average="micro")

    @property
    def side_files(self) -> str | None:
        """The checkpoint folder whose preprocessor and other side files belong to this model as well, if any."""
        return self.source if self.source is not None and Path(self.source).is_dir() else None

    def setup(self, stage: str) -> None:
        """Compare the data module's classes with the head before anything runs."""
        data = getattr(self.trainer, "datamodule", None)
        classes = getattr(data, "num_classes", None)
        if classes is not None and classes > self.num_classes:
            raise InputError(
                f"the data set {getattr(data, 'name', '')} has {classes} classes, but num_classes of the model is "
                f"{self.num_classes}"
            )

    def forward(self, batch: Batch) -> Tensor:
        """Logits of a batch, of shape ``(batch, classes)``."""
        return logits(self.model, batch)

    def training_step(self, batch: Batch, batch_index: int) -> Tensor:
        """Cross entropy with label smoothing."""
        loss = cross_entropy(self(batch), batch[LABELS], label_smoothing=self.label_smoothing)
        self.log("train/loss", loss, prog_bar=True, batch_size=len(batch[LABELS]))
        return loss

    def validation_step(self, batch: Batch, batch_index: int) -> None:
        """Log loss and accuracy."""
        output = self(batch)
        size = len(batch[LABELS])
        self.val_accuracy(output, batch[LABELS])
        self.log("val/loss", cross_entropy(output, batch[LABELS]), prog_bar=True, batch_size=size, sync_dist=True)
        self.log("val/accuracy", self.val_accuracy, prog_bar=True, batch_size=size)

    def test_step(self, batch: Batch, batch_index: int) -> None:
        """Log accuracy."""
        self.test_accuracy(self(batch), batch[LABELS])
        self.log("test/accuracy", self.test_accuracy, batch_size=len(batch[LABELS]))

    def predict_step(self, batch: Batch, batch_index: int) -> Tensor:
        """Class probabilities, of shape ``(batch, classes)``."""
        return self(batch).float().softmax(-1)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """AdamW, and a learning rate that is set anew for every optimizer step."""
        optimizer = torch.optim.AdamW(self._parameter_groups(), lr=self.learning_rate, weight_decay=self.weight_decay)
        steps = self.trainer.estimated_stepping_batches
        if math.isinf(steps):
            raise InputError("the learning-rate schedule needs an end: set trainer.max_epochs or trainer.max_steps")
        scheduler = get_scheduler(
            _SCHEDULES[self.schedule],
            optimizer,
            num_warmup_steps=round(self.warmup_ratio * steps),
            num_training_steps=int(steps),
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def _parameter_groups(self) -> list[dict[str, Any]]:
        named_by_timm: set[str] = getattr(self.model, "no_weight_decay", set)()
        decayed: list[nn.Parameter] = []
        kept: list[nn.Parameter] = []
        for name, parameter in self.model.named_parameters():
            if not parameter.requires_grad:
                continue
            special = name.rsplit(".", 1)[-1] in _EMBEDDINGS or name in named_by_timm
            (kept if parameter.ndim < 2 or special else decayed).append(parameter)
        return [{"params": decayed}, {"params": kept, "weight_decay": 0.0}]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Store what is needed to build the model again, so that `fusionlab.load` reads the file by itself."""
        checkpoint["fusionlab"] = checkpoints.describe(self.model)


def _refuse_out_of_range(
    num_classes: int, learning_rate: float, weight_decay: float, warmup_ratio: float, label_smoothing: float
) -> None:
    for name, value, allowed, expected in (
        ("num_classes", num_classes, num_classes >= 1, "at least 1"),
        ("learning_rate", learning_rate, learning_rate > 0, "above 0"),
        ("weight_decay", weight_decay, weight_decay >= 0, "0 or more"),
        ("warmup_ratio", warmup_ratio, 0 <= warmup_ratio <= 1, "from 0 to 1"),
        ("label_smoothing", label_smoothing, 0 <= label_smoothing < 1, "from 0 to below 1"),
    ):
        if not allowed:
            raise InputError(f"{name} is {value}, but a value {expected} was expected")
