"""Polish: a short distillation of a merged model towards its end models' outputs, without labels."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import get_scheduler

from fusionlab.distillation import Batch, Targets, distillation_loss, output_of, teacher_targets
from fusionlab.errors import InputError
from fusionlab.matching.lessons import Lesson, Lessons, Pool, gather
from fusionlab.matching.mixtures import ENOUGH
from fusionlab.models import with_state
from fusionlab.trainers import quiet_trainer

Model = TypeVar("Model", bound=nn.Module)
Source = Iterable[Batch]
# Adam moves every weight by about the learning rate, so an output by that times the width; see `PolishOptions`.
WIDTH_TIMES_RATE, HIGHEST_RATE, WARMUP = 0.064, 1e-3, 0.05


@dataclass(frozen=True)
class PolishOptions:
    """How a merged model is polished.

    Attributes:
        steps: of the optimizer, at least 1.
        learning_rate: peak learning rate of AdamW, above 0; None for 0.064 over the model's width, at most 0.001 (0.001
            for width 64, 0.00008 for 768).
        batch_size: examples in one step, at least 1; fewer where fewer are given.
        weight_decay: AdamW's, 0 or more.
        temperature: of the distillation, above 0; softer targets say more where inputs are few or synthetic.
        mixtures: fewer inputs than this are filled up with mixtures of two of them (mixup), where they are images or
            other real numbers; 0 for none.
        seed: of the mixtures and of the order of the examples.
    """

    steps: int = 300
    learning_rate: float | None = None
    batch_size: int = 128
    weight_decay: float = 0.01
    temperature: float = 2.0
    mixtures: int = ENOUGH
    seed: int = 0

    def __post_init__(self) -> None:
        rate = 1.0 if self.learning_rate is None else self.learning_rate
        for name, value, allowed, expected in (
            ("steps", self.steps, self.steps >= 1, "at least 1"),
            ("learning_rate", rate, math.isfinite(rate) and rate > 0, "above 0"),
            ("batch_size", self.batch_size, self.batch_size >= 1, "at least 1"),
            ("weight_decay", self.weight_decay, self.weight_decay >= 0, "0 or more"),
            ("temperature", self.temperature, self.temperature > 0, "above 0"),
            ("mixtures", self.mixtures, self.mixtures >= 0, "0 or more"),
        ):
            if not allowed:
                raise InputError(f"polish {name} is {value}; expected {expected}")

    def rate(self, model: nn.Module) -> float:
        """The peak learning rate for a model."""
        if self.learning_rate is not None:
            return self.learning_rate
        widths = sorted(min(parameter.shape) for parameter in model.parameters() if parameter.ndim == 2)
        return min(HIGHEST_RATE, WIDTH_TIMES_RATE / widths[len(widths) // 2]) if widths else HIGHEST_RATE


class PolishModule(LightningModule):
    """Trains a copy of the merged model to return what its end models return on average; one pass is the whole job.

    What the end models return is computed once, before the first step (with every batch only where it is too large to
    keep). Dropout stays off. Devices, precision and strategy are the Trainer's; ``student`` is the result.

    Args:
        merged: the model to polish; not modified.
        end_models: the teachers; not modified.
        sources: inputs, one iterable of batches that all teach on, or one for each end model.
        options: how.
        known: for each end model which labels it knows, bool of shape ``(classes,)``; all if None.

    Raises:
        InputError: no end model, a number of sources that fits neither, or a merged model without anything to train.
    """

    def __init__(
        self,
        merged: nn.Module,
        end_models: Sequence[nn.Module],
        sources: Sequence[Source],
        options: PolishOptions,
        known: Sequence[Tensor] | None = None,
    ) -> None:
        super().__init__()
        if not end_models:
            raise InputError("polish was given no end model; expected at least one to learn from")
        if len(sources) not in (1, len(end_models)):
            raise InputError(
                f"polish was given {len(sources)} sets of inputs for {len(end_models)} end models; expected one for "
                f"all, or one for each"
            )
        self.student = copy.deepcopy(merged)
        # Half precision cannot hold steps this small.
        self.student.to(torch.promote_types(next(merged.parameters()).dtype, torch.float32))
        if not any(parameter.requires_grad for parameter in self.student.parameters()):
            raise InputError("all parameters of the merged model are frozen; expected some that polish may train")
        self.sources, self.options, self.known = list(sources), options, known
        # A plain list: the teachers are neither trained nor saved with the student.
        self._teachers = [copy.deepcopy(model).eval() for model in end_models]

    def train_dataloader(self) -> DataLoader:
        """As many batches as steps, with what the end models make of them."""
        for teacher in self._teachers:
            teacher.to(self.device)
        alone = len(self.sources) > 1
        pools = [self._pool(source, index if alone else None) for index, source in enumerate(self.sources)]
        lessons = Lessons(pools, self.options.steps, self.options.batch_size, self.options.seed)
        return DataLoader(lessons, batch_size=None)

    def on_train_start(self) -> None:
        self.student.eval()

    def training_step(self, lessons: list[Lesson], batch_index: int) -> Tensor:
        """The mean loss over the sources."""
        losses = []
        for lesson in lessons:
            targets = lesson.targets or self._targets(lesson.batch, lesson.own)
            output = output_of(self.student, lesson.batch)
            losses.append(distillation_loss(output, targets, lesson.batch, self.options.temperature))
        loss = torch.stack(losses).mean()
        self.log("polish/loss", loss, prog_bar=True, batch_size=1)
        return loss

    def on_train_batch_end(self, *_: Any) -> None:
        if self.global_step >= self.options.steps:
            self.trainer.should_stop = True

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """AdamW; the learning rate rises over the first twentieth and then falls as a cosine."""
        options = self.options
        trained = [parameter for parameter in self.student.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=options.rate(self.student), weight_decay=options.weight_decay)
        schedule = get_scheduler("cosine", optimizer, round(WARMUP * options.steps), options.steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _targets(self, batch: Batch, own: int | None) -> Targets:
        return teacher_targets(self._teachers, batch, own, known=self.known)

    def _pool(self, source: Source, own: int | None) -> Pool:
        options = self.options
        wanted = options.steps * options.batch_size // len(self.sources)
        how: Any = {"known": self.known, "mixed": options.mixtures, "seed": options.seed}
        return gather(self._teachers, source, own, wanted, with_targets=True, **how)


def polish(
    merged: Model,
    end_models: Sequence[nn.Module],
    batches: Source | Sequence[Source],
    options: PolishOptions | None = None,
    trainer: Trainer | None = None,
    known: Sequence[Tensor] | None = None,
) -> Model:
    """Distil the end models' averaged outputs into a merged model (Hinton, Vinyals and Dean, 2015).

    Args:
        merged: what to start from; not modified.
        end_models: the teachers, of any basis: only their outputs count; not modified.
        batches: inputs by name, labels ignored: batches that all end models teach on; or a list with one iterable of
            batches for each end model, which then teaches alone on its own.
        options: how; the defaults if None.
        trainer: runs it; it stops after ``options.steps``. A quiet one if None.
        known: for each end model which labels it knows, bool of shape ``(classes,)``; all if None.

    Returns:
        A new model of the merged model's class, types and device, in eval mode.

    Raises:
        InputError: no inputs, or inputs that do not fit the number of end models.
    """
    first, whole = _peek(batches)
    sources: list[Any] = [whole] if isinstance(first, Mapping) else list(whole)
    module = PolishModule(merged, end_models, sources, options or PolishOptions(), known)
    (trainer or quiet_trainer(devices=1)).fit(module)
    return with_state(merged, module.student.state_dict())


def _peek(items: Iterable[Any]) -> tuple[Any, Iterable[Any]]:
    """The first item, and all of them."""
    iterator = iter(items)
    first = next(iterator, None)
    if first is None:
        raise InputError("polish was given no inputs; expected at least one batch")
    return first, itertools.chain([first], iterator)
