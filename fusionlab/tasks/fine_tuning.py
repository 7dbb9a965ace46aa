"""The base of all tasks: AdamW with a warm-up, loss and metrics, what is stored with a checkpoint."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from transformers import get_scheduler

from fusionlab import checkpoints
from fusionlab.checkpoints.hub import locate
from fusionlab.data.contract import DataFacts, described
from fusionlab.errors import InputError, first_line
from fusionlab.evaluation.scores import Scores, Task
from fusionlab.forward import LABELS, input_embeddings, logits
from fusionlab.misfits import refuse_other_classes
from fusionlab.sentences import sentence
from fusionlab.symmetry.wrappers import unwrapped
from fusionlab.types import Batch

SCORE = "val/score"
"""The main metric of any task, for callbacks that keep the best weights; language models have ``val/loss`` instead."""

_SCHEDULES = {"cosine": "cosine", "linear": "linear", "constant": "constant_with_warmup"}
# Tokens of their own, tables of positions and gains that are no vectors: decaying them has no scale to work against.
_EMBEDDINGS = {
    "cls_token", "dist_token", "distillation_token", "mask_token", "mask_emb", "register_tokens", "embed_positions",
    "positions_embed", "wpe", "rel_embeddings", "relative_pos_embeddings", "relative_position_bias_table", "grn",
}  # fmt: skip
# Tables of several kinds of positions are told apart by what stands before; biases may have any shape.
_ENDS = ("pos_embed", "position_embedding", "position_embeddings", "bias")

# What torch.compile puts before the names of what is inside.
_COMPILED = "_orig_mod."


class FineTuning(LightningModule, ABC):
    """Train a model with AdamW and a warm-up, and measure it by the scores of its task.

    A subclass sets ``task`` and ``model``, then calls `_ready`, and says what the training loss is and what a
    prediction looks like. Logged are ``train/loss``, and ``val/`` and ``test/`` with ``loss`` and every metric; the
    main metric also as ``val/score`` for callbacks. Precision, devices and strategy are the Trainer's.
    """

    model: nn.Module
    task: Task
    val_scores: Scores
    test_scores: Scores

    def __init__(
        self,
        learning_rate: float = 1e-5,
        weight_decay: float = 0.0,
        warmup_ratio: float = 0.06,
        schedule: Literal["cosine", "linear", "constant"] = "linear",
    ) -> None:
        """Set the optimiser; the defaults are those of the paper's text experiments.

        Args:
            learning_rate: peak learning rate of AdamW, above 0.
            weight_decay: AdamW's weight decay, 0 or more. Biases, normalisation gains, position tables and
                special tokens are not decayed.
            warmup_ratio: share of all optimizer steps over which the learning rate rises from 0, from 0 to 1.
            schedule: how the learning rate goes on after the warm-up.

        Raises:
            InputError: a value out of range, or another schedule.
        """
        super().__init__()
        refuse_out_of_range(
            ("learning_rate", learning_rate, learning_rate > 0, "above 0"),
            ("weight_decay", weight_decay, weight_decay >= 0, "0 or more"),
            ("warmup_ratio", warmup_ratio, 0 <= warmup_ratio <= 1, "from 0 to 1"),
        )
        if schedule not in _SCHEDULES:
            raise InputError(f"schedule is {schedule!r}, but one of {', '.join(_SCHEDULES)} was expected")
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.warmup_ratio = warmup_ratio
        self.schedule = schedule
        self.class_names: list[str] | None = None
        self._source: str | None = None
        self._fits = False  # whether a batch has passed through the model

    @abstractmethod
    def scores(self) -> Scores:
        """Fresh scores of this task."""

    @abstractmethod
    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        """The training loss, a scalar."""

    @abstractmethod
    def prediction_rows(self, batches: Sequence[Any]) -> Iterator[list[Any]]:
        """A table of what `predict_step` returned: the header, then its rows."""

    def _ready(self, source: Any) -> None:
        """Make the scores, once the model is there."""
        self._source = source if isinstance(source, str) else None
        # from_pretrained hands models over in eval mode, where dropout is off.
        self.model.train()
        self.val_scores, self.test_scores = self.scores(), self.scores()

    @property
    def side_files(self) -> str | None:
        """The checkpoint folder whose preprocessor, tokenizer and other side files belong to this model, if any."""
        if self._source is None:
            return None
        if Path(self._source).is_dir():
            return self._source
        try:
            location = locate(self._source)
        except InputError:  # a name of timm's, or a file that has gone since
            return None
        return str(location) if location.is_dir() else None

    def setup(self, stage: str) -> None:
        """Compare the data module with the model before anything runs."""
        data = self.data()
        if data.task not in (None, self.task):
            raise InputError(
                f"the data {data.name} is for the task {data.task}, but {type(self).__name__} was made for {self.task}"
            )
        if self.class_names is not None:
            refuse_other_classes(data.name, data.class_names, self.class_names)
        size, vocabulary = data.vocabulary_size, self._vocabulary()
        if size is not None and vocabulary is not None and size > vocabulary:
            raise InputError(
                f"the tokenizer of the data has {size} tokens, but the model has embeddings for {vocabulary}"
            )

    def data(self) -> DataFacts:
        """The facts that the Trainer's data module states; none where it has loaders alone.

        Raises:
            InputError: a data module that is not what the contract says.
        """
        return described(getattr(self.trainer, "datamodule", None))

    def _vocabulary(self) -> int | None:
        embeddings = input_embeddings(self.model)
        return None if embeddings is None else embeddings.num_embeddings

    def forward(self, batch: Batch) -> Tensor:
        """Logits of a batch, of shape ``(batch, ..., classes)``.

        Raises:
            InputError: the first batch does not fit the model.
        """
        try:
            found = logits(self.model, batch)
        except Exception as error:
            # Every model refuses foreign inputs in its own way; what the machine cannot do is told as it is.
            if self._fits or sentence(error) is not None:
                raise
            raise InputError(f"the data does not fit the model: {first_line(error)}") from error
        self._fits = True
        return found

    def training_step(self, batch: Batch, batch_index: int) -> Tensor:
        """The loss of a batch."""
        loss = self.loss(self(batch), batch[LABELS])
        self.log("train/loss", loss, prog_bar=True, batch_size=len(batch[LABELS]))
        return loss

    def validation_step(self, batch: Batch, batch_index: int, dataloader_idx: int = 0) -> None:
        """Score a batch; those of several loaders are scored together."""
        self.val_scores.add(self(batch), batch[LABELS])

    def on_validation_epoch_end(self) -> None:
        """Log the scores of all batches."""
        self._log("val", self.val_scores, prog_bar=True)

    def test_step(self, batch: Batch, batch_index: int, dataloader_idx: int = 0) -> None:
        """Score a batch; those of several loaders are scored together."""
        self.test_scores.add(self(batch), batch[LABELS])

    def on_test_epoch_end(self) -> None:
        """Log the scores of all batches."""
        self._log("test", self.test_scores, prog_bar=False)

    def _log(self, stage: str, scores: Scores, prog_bar: bool) -> None:
        # The metrics are reduced over processes already: each process logs the same numbers.
        found = scores.compute()
        self.log_dict({f"{stage}/{name}": value for name, value in found.items()}, prog_bar=prog_bar)
        if stage == "val" and not scores.main_is_loss:
            self.log(SCORE, found[scores.main], logger=False)
        scores.reset()

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """AdamW, and a learning rate that is set anew for every optimizer step."""
        optimizer = torch.optim.AdamW(self._parameter_groups(), lr=self.learning_rate, weight_decay=self.weight_decay)
        steps = self.trainer.estimated_stepping_batches
        if self.schedule == "constant" and not self.warmup_ratio:
            steps = 0  # nothing of it depends on where it ends
        elif math.isinf(steps) or steps < 0:
            raise InputError(
                "the learning-rate schedule needs an end: set trainer.max_steps (trainer.max_epochs is enough where "
                "the training data say how many batches they have)"
            )
        scheduler = get_scheduler(
            _SCHEDULES[self.schedule],
            optimizer,
            num_warmup_steps=round(self.warmup_ratio * steps),
            num_training_steps=int(steps),
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def _parameter_groups(self) -> list[dict[str, Any]]:
        model = unwrapped(self.model)
        named_by_timm: set[str] = getattr(model, "no_weight_decay", set)()
        decayed: list[nn.Parameter] = []
        kept: list[nn.Parameter] = []
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            special = name in named_by_timm or any(
                part in _EMBEDDINGS or part.endswith(_ENDS) for part in name.split(".")
            )
            (kept if parameter.ndim < 2 or special else decayed).append(parameter)
        return [{"params": decayed}, {"params": kept, "weight_decay": 0.0}]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Store what is needed to build the model again, so that `fusionlab.load` reads the file by itself."""
        checkpoint["fusionlab"] = checkpoints.describe(unwrapped(self.model))
        state = checkpoint["state_dict"]
        if any(_COMPILED in name for name in state):
            # A file is of the model itself, whether or not it was compiled where it was trained.
            checkpoint["state_dict"] = {name.replace(_COMPILED, ""): value for name, value in state.items()}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Find the names of a compiled model again, which files do not have."""
        own = {name.replace(_COMPILED, ""): name for name in self.state_dict() if _COMPILED in name}
        if own:
            state = checkpoint["state_dict"]
            checkpoint["state_dict"] = {own.get(name, name): value for name, value in state.items()}


def refuse_out_of_range(*checks: tuple[str, float, bool, str]) -> None:
    """Refuse the first value that is not allowed.

    Args:
        checks: name, value, whether it is allowed, and what was expected instead.

    Raises:
        InputError: names the value.
    """
    for name, value, allowed, expected in checks:
        if not allowed:
            raise InputError(f"{name} is {value}, but a value {expected} was expected")
